import { type ExpressionBuilder, type Selectable, sql } from "kysely";
import type { ItemClaim } from "../../../domain/ports/item-repository.ts";
import { kept, type Values } from "../../dialects/kept-query.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database, ItemsTable } from "../../schema.ts";

type ItemFilter = ExpressionBuilder<Database, "items">;

/**
 * The order of claims. Items that were never tried show whether the upstream is well, and lose nothing when it is not.
 * Each is a search of its own, which ends at its first finds.
 */
const ORDER: readonly ((eb: ItemFilter) => ReturnType<ItemFilter["and"]>)[] = [
  (eb) => eb.and([eb("failed_at", "is", null), eb("maybe_paid", "=", "no")]),
  (eb) => eb.and([eb("maybe_paid", "=", "no")]),
  (eb) => eb.and([]),
];

/** See `ItemRepository.claim`. */
export async function claimItems<T>(
  { build, dialect, all }: SqlSession,
  batchId: string,
  claim: ItemClaim,
  toRecord: (row: Selectable<ItemsTable>) => T,
): Promise<T[]> {
  const claimed: Selectable<ItemsTable>[] = [];
  for (const group of ORDER) {
    const limit = claim.limit - claimed.length;
    if (limit === 0) break;
    const some = await all(queryOf(dialect, group, claim)(build, { ...claim, batchId, limit }));
    claimed.push(...some.sort((a, b) => a.position - b.position));
  }
  return claimed.map(toRecord);
}

type ClaimQuery = ReturnType<typeof makeQuery>;
const QUERIES = new Map<string, ClaimQuery>();

function queryOf(
  dialect: SqlSession["dialect"],
  group: (typeof ORDER)[number],
  { which, isPaid }: ItemClaim,
): ClaimQuery {
  const name = `${dialect} ${ORDER.indexOf(group)} ${which} ${isPaid}`;
  const query = QUERIES.get(name) ?? makeQuery(dialect, group, which, isPaid);
  QUERIES.set(name, query);
  return query;
}

type ClaimValues = Omit<ItemClaim, "which" | "isPaid"> & { batchId: string };

function makeQuery(
  dialect: SqlSession["dialect"],
  group: (typeof ORDER)[number],
  which: ItemClaim["which"],
  isPaid: boolean,
) {
  return kept((build, claim: Values<ClaimValues>) => {
    const { provider, mostSwitches } = claim;
    // A batch that was just cancelled starts no item.
    const running = build
      .selectFrom("batches")
      .select("batches.id")
      .where("batches.id", "=", claim.batchId)
      .where("batches.status", "=", "running");
    const due = build
      .selectFrom("items")
      .select("id")
      .where("batch_id", "=", running)
      .where("status", "=", "pending")
      .where("not_before_ms", "<=", claim.nowMs)
      .where("lease_token", "is", null)
      .where((eb) =>
        eb.or([eb("provider", "is", null), eb("provider", "=", provider), eb("switches", "<", mostSwitches)]),
      )
      .where(group)
      .orderBy("position")
      .limit(claim.limit);
    const free = {
      any: due,
      "not-failed-here": due.where((eb) =>
        eb.or([
          eb("failed_at", "is", null),
          eb("failed_at", "!=", provider),
          // It may not change the provider any more.
          eb("switches", ">=", mostSwitches),
        ]),
      ),
      "failed-elsewhere": due.where("failed_at", "is not", null).where("failed_at", "!=", provider),
    }[which];
    const isSwitch = sql<number>`case when provider is not null and provider != ${provider} then 1 else 0 end`;
    const paidAgain = sql<string>`case when maybe_paid = 'once' then 'twice' else maybe_paid end`;
    // Items that another process is claiming are passed over. On SQLite no other transaction is at work.
    const first = dialect === "postgres" ? free.forUpdate().skipLocked() : free;
    const update = build
      .with("free", () => first)
      .updateTable("items")
      .set({
        lease_token: claim.token,
        lease_worker: claim.worker,
        switches: sql<number>`switches + ${isSwitch}`,
        provider,
        ...(isPaid ? { maybe_paid: paidAgain } : {}),
      });
    return update.where("id", "in", (eb) => eb.selectFrom("free").select("free.id")).returningAll();
  });
}
