import { sql } from "kysely";
import { UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { type SqlSession, written } from "../dialects/sql-session.ts";
import { columnNames } from "./rows.ts";

const BATCH = columnNames<keyof BatchRecord>("batches", ["taskNameFolded", "owner", "served"]);

type Window = Parameters<Repositories["audit"]["doubtful"]>[1];

/** Aggregates over whole tables: a database of 100,000 batches is checked in one pass. */
export function auditRepository(session: SqlSession): Repositories["audit"] {
  const { build, all, first } = session;
  return {
    accounts: async () => {
      const ofEntries = build
        .selectFrom("ledger_entries")
        .select((eb) => ["accountId", eb.fn.sum<number>("balanceChangeMicroUsd").as("balanceMicroUsd")])
        .select((eb) => eb.fn.sum<number>("heldChangeMicroUsd").as("heldMicroUsd"))
        .groupBy("accountId");
      const ofBatches = build
        .selectFrom("batches")
        .select((eb) => ["accountId", eb.fn.countAll<number>().as("batches")])
        .select(
          sql<number>`sum(case when settled_at_ms is null then hold_micro_usd else 0 end)`.as("openMicroUsd"),
        )
        .groupBy("accountId");
      const [entries, batches] = [await all(ofEntries), await all(ofBatches)];
      const sums = new Map(batches.map((each) => [each.accountId, each]));
      const none = { batches: 0, openMicroUsd: 0, balanceMicroUsd: 0, heldMicroUsd: 0 };
      const ids = new Set([...sums.keys(), ...entries.map(({ accountId }) => accountId)]);
      const moved = new Map(entries.map((each) => [each.accountId, each]));
      return [...ids].map((accountId) => ({
        ...none,
        ...sums.get(accountId),
        ...moved.get(accountId),
        accountId,
      }));
    },
    lastSeq: async () => {
      const last = build.selectFrom("batches").select((eb) => eb.fn.max("seq").as("seq"));
      return (await first(last))?.seq ?? 0;
    },
    doubtful: async (steps, window) => {
      const found = await all(written(session, doubtful(session, steps, window)));
      const ids = found.map(({ id }) => id);
      return all(build.selectFrom("batches").select(BATCH).where("id", "in", ids).orderBy("seq"));
    },
    requestEntries: (accountId) =>
      all(
        build
          .selectFrom("ledger_entries")
          .selectAll()
          .where("accountId", "=", accountId)
          .where("batchId", "is", null)
          .where("kind", "!=", "top_up")
          .orderBy("seq"),
      ),
    lostOutputs: ({ afterSeq, toSeq }) => {
      const kept = build.selectFrom("batches").select("id").where("status", "!=", "output_deleted");
      const some = kept.where("seq", ">", afterSeq).where("seq", "<=", toSeq);
      const query = build
        .selectFrom("items")
        .leftJoin("outputs", "outputs.itemId", "items.id")
        .select(["items.batchId", "items.customId"])
        .select((eb) =>
          sql<number>`${eb.ref("items.imageCount")} - count(${eb.ref("outputs.itemId")})`.as("lost"),
        )
        .where("items.batchId", "in", some)
        .where("items.status", "=", "success")
        .where("items.imagesDeletedAtMs", "is", null)
        .groupBy(["items.id", "items.batchId", "items.customId", "items.imageCount"])
        .having((eb) => sql<boolean>`count(${eb.ref("outputs.itemId")}) < ${eb.ref("items.imageCount")}`)
        .orderBy("items.id");
      return all(query);
    },
    keptOutputs: ({ afterSeq, toSeq }) => {
      const kept = build.selectFrom("batches").select("id").where("status", "!=", "output_deleted");
      const some = kept.where("seq", ">", afterSeq).where("seq", "<=", toSeq);
      return all(build.selectFrom("outputs").selectAll().where("batchId", "in", some));
    },
  };
}

/**
 * The batches that are not right beyond doubt: a comparison with a missing value counts as a doubt. `domain/check-invariants.ts`
 * then finds out what is wrong with them.
 */
function doubtful({ dialect }: SqlSession, steps: readonly string[], window: Window) {
  const inWindow = sql`seq > ${window.afterSeq} and seq <= ${window.toSeq}`;
  const some = sql`batch_id in (select id from batches where ${inWindow})`;
  const inPrice = (key: "imageMicroUsd" | "holdMicroUsd") =>
    dialect === "postgres"
      ? sql`(b.price::json->>${sql.lit(key)})::bigint`
      : sql`json_extract(b.price, ${sql.lit(`$.${key}`)})`;
  const moved = (kind: string) =>
    sql`sum(case when kind = ${sql.lit(kind)} then amount_micro_usd else 0 end)`;
  const count = (status: string) => sql`sum(case when status = ${sql.lit(status)} then 1 else 0 end)`;
  const hasEnded = sql`b.status not in (${sql.join(UNFINISHED_BATCH_STATUSES.map((each) => sql.lit(each)))})`;
  const z = (column: string) => sql`coalesce(${sql.ref(column)}, 0)`;
  return sql<{ id: string }>`
    with money as (
      select batch_id, account_id, ${moved("hold")} as held, ${moved("capture")} as captured,
        ${moved("release")} as released, ${moved("grant")} as granted, ${moved("take_back")} as taken
      from ledger_entries where ${some} group by batch_id, account_id
    ), made as (
      select batch_id, count(*) as total, ${count("pending")} as pending, ${count("success")} as success,
        ${count("failed")} as failed, sum(coalesce(price_micro_usd, 0)) as price,
        sum(case when price_micro_usd is null then 1 else 0 end) as unpriced,
        sum(case when status = 'success' then coalesce(price_micro_usd, 0) else 0 end) as earned,
        sum(case when status = 'success' and price_micro_usd is null then 1 else 0 end) as unpriced_success,
        sum(coalesce(hold_micro_usd, 0)) as hold, sum(case when hold_micro_usd is null then 1 else 0 end) as unheld
      from items where ${some} group by batch_id
    ), steps as (
      select batch_id, "from", "to", lag("to") over (partition by batch_id order by seq) as before,
        lead("to") over (partition by batch_id order by seq) as after
      from batch_events where ${some}
    ), history as (
      select batch_id, max(case when after is null then "to" end) as last,
        sum(case when "from" is null and before is null and "to" = 'queued' then 0
          when "from" = before and "from" || '>' || "to" in (${sql.join(steps.map((each) => sql.lit(each)))}) then 0
          else 1 end) as wrong
      from steps group by batch_id
    )
    select b.id as id from (select * from batches where ${inWindow}) b
      left join money m on m.batch_id = b.id and m.account_id = b.account_id
      left join made i on i.batch_id = b.id
      left join history h on h.batch_id = b.id
    where (
      ${z("m.held")} = b.hold_micro_usd
      and ${z("m.held")} = ${z("m.captured")} + ${z("m.released")} + case when ${hasEnded} then 0 else b.hold_micro_usd end
      and (${z("m.granted")} = 0 or ${z("m.granted")} = ${z("m.held")})
      and ${z("m.taken")} = case when ${z("m.granted")} = 0 then 0 else ${z("m.released")} end
      and (not ${hasEnded} or ${z("m.captured")} = b.actual_micro_usd)
      and ${z("i.total")} = b.item_count
      and ${z("i.success")} = b.success_count and ${z("i.failed")} = b.fail_count
      and (${z("i.pending")} = 0 or not ${hasEnded})
      and b.hold_micro_usd = ${z("i.hold")} + ${z("i.unheld")} * ${inPrice("holdMicroUsd")}
      and b.estimated_micro_usd = ${z("i.price")} + ${z("i.unpriced")} * ${inPrice("imageMicroUsd")}
      and (not ${hasEnded}
        or b.actual_micro_usd = ${z("i.earned")} + ${z("i.unpriced_success")} * ${inPrice("imageMicroUsd")})
      and h.wrong = 0 and h.last = b.status
    ) is not true
    order by b.seq`;
}
