import { type ExpressionBuilder, type Kysely, sql } from "kysely";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { ItemRecord, MaybePaid } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";
import { columnNames } from "./rows.ts";

/** The columns of an `ItemRecord`. */
export const ITEM: readonly (keyof ItemRecord)[] = [
  "id",
  ...columnNames<keyof ItemRecord>("items", ["notBeforeMs", "delayedAtMs", "leaseWorker"]),
];

type ItemFilter = ExpressionBuilder<Database, "items">;
type Group = (eb: ItemFilter) => ReturnType<ItemFilter["and"]>;

/**
 * The order of claims. Items that were never tried show whether the upstream is well, and lose nothing when it is not.
 * Each is a search of its own, which ends at its first finds.
 */
const ORDER: readonly Group[] = [
  (eb) => eb.and([eb("failedAt", "is", null), eb("maybePaid", "=", "no")]),
  (eb) => eb.and([eb("maybePaid", "=", "no")]),
  (eb) => eb.and([]),
];

type ItemClaim = Parameters<Repositories["items"]["claim"]>[1];

/** See `Repositories.items.claim`. */
export async function claimItems(
  session: SqlSession,
  batchId: string,
  claim: ItemClaim,
): Promise<ItemRecord[]> {
  const claimed: ItemRecord[] = [];
  for (const group of ORDER) {
    const limit = claim.limit - claimed.length;
    if (limit === 0) break;
    claimed.push(...(await claimOf(session, group, { ...claim, batchId, limit })));
  }
  return claimed;
}

/**
 * SQLite makes a temporary table for each list in a statement, which takes ten times as long as a statement for each item.
 * No other transaction is at work there.
 */
async function claimOf(
  { build, dialect, all }: SqlSession,
  group: Group,
  claim: ClaimFacts,
): Promise<ItemRecord[]> {
  const { findFree, lease, leaseFree } = queriesFor(group, claim);
  if (dialect === "postgres") {
    const some = await all(leaseFree(build, claim));
    return some.sort((a, b) => a.position - b.position);
  }
  const some: ItemRecord[] = [];
  for (const { id } of await all(findFree(build, claim)))
    some.push(...(await all(lease(build, { ...claim, itemId: id }))));
  return some;
}

type ClaimFacts = ItemClaim & { batchId: string };
type ClaimValues = Omit<ClaimFacts, "which" | "isPaid">;

const QUERIES = new Map<string, ReturnType<typeof makeQueries>>();

function queriesFor(group: Group, { which, isPaid }: ItemClaim): ReturnType<typeof makeQueries> {
  const name = `${ORDER.indexOf(group)} ${which} ${isPaid}`;
  const queries = QUERIES.get(name) ?? makeQueries(group, which, isPaid);
  QUERIES.set(name, queries);
  return queries;
}

function makeQueries(group: Group, which: ItemClaim["which"], isPaid: boolean) {
  return {
    /** Finds items that may be claimed. */
    findFree: prepared((build, claim: Values<ClaimValues>) => freeItems(build, group, which, claim)),
    /** Claims one of them. */
    lease: prepared((build, claim: Values<ClaimValues & { itemId: number }>) => {
      const update = build.updateTable("items").set(leaseOf(isPaid, claim));
      return update.where("id", "=", claim.itemId).returning(ITEM);
    }),
    /** Finds and claims, and passes over items that another process is claiming. */
    leaseFree: prepared((build, claim: Values<ClaimValues>) => {
      const free = freeItems(build, group, which, claim).forUpdate().skipLocked();
      const update = build.with("free", () => free).updateTable("items");
      const leased = update.set(leaseOf(isPaid, claim));
      return leased.where("id", "in", (eb) => eb.selectFrom("free").select("free.id")).returning(ITEM);
    }),
  };
}

function freeItems(
  build: Kysely<Database>,
  group: Group,
  which: ItemClaim["which"],
  claim: Values<ClaimValues>,
) {
  const { provider, upstream, mostSwitches } = claim;
  // A batch that was just cancelled starts no item.
  const open = build
    .selectFrom("batches")
    .select("batches.id")
    .where("batches.id", "=", claim.batchId)
    .where("batches.status", "in", ["queued", "running"]);
  const due = build
    .selectFrom("items")
    .select("id")
    .where("batchId", "=", open)
    .where("status", "=", "pending")
    .where((eb) => eb.or([eb("notBeforeMs", "<=", claim.nowMs), eb("delayedAtMs", ">", claim.nowMs)]))
    .where("leaseToken", "is", null)
    .where((eb) =>
      eb.or([eb("provider", "is", null), eb("provider", "=", provider), eb("switches", "<", mostSwitches)]),
    )
    .where((eb) => eb.or([eb("taskUpstream", "is", null), eb("taskUpstream", "=", upstream)]))
    .where(group)
    .orderBy("position")
    .limit(claim.limit);
  return {
    any: due,
    "not-failed-here": due.where((eb) =>
      eb.or([
        eb("failedAt", "is", null),
        eb("failedAt", "!=", provider),
        // It may not change the provider any more.
        eb("switches", ">=", mostSwitches),
      ]),
    ),
    "failed-elsewhere": due.where("failedAt", "is not", null).where("failedAt", "!=", provider),
  }[which];
}

/** The values of an item that is claimed. */
function leaseOf(isPaid: boolean, { provider, token, worker }: Values<ClaimValues>) {
  const isSwitch = sql<number>`case when provider is not null and provider != ${provider} then 1 else 0 end`;
  const paidAgain = sql<MaybePaid>`case when maybe_paid = 'once' then 'twice' else maybe_paid end`;
  return {
    leaseToken: token,
    leaseWorker: worker,
    switches: sql<number>`switches + ${isSwitch}`,
    provider,
    ...(isPaid ? { maybePaid: paidAgain } : {}),
  };
}
