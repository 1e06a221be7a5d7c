import type { Selectable } from "kysely";
import type { RealtimeHoldRecord } from "../../../domain/ports/realtime-records.ts";
import type { RealtimeHoldRepository } from "../../../domain/ports/stores.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";
import { liveWorkers } from "../workers.ts";

export function realtimeHoldRepository(session: SqlSession): RealtimeHoldRepository {
  const { build, all, first, run } = session;
  const holds = () => build.selectFrom("realtime_holds").selectAll();
  return {
    insert: async (hold) => {
      const values = {
        id: hold.id,
        api_key_id: hold.apiKeyId,
        account_id: hold.accountId,
        amount_micro_usd: hold.amountMicroUsd,
        created_at_ms: hold.createdAtMs,
        worker: hold.worker,
      };
      await run(build.insertInto("realtime_holds").values(values));
    },
    remove: async (id) => {
      const row = await first(build.deleteFrom("realtime_holds").where("id", "=", id).returningAll());
      return row && toRecord(row);
    },
    abandoned: async () => {
      const dead = holds().where((eb) =>
        eb.or([eb("worker", "is", null), eb("worker", "not in", liveWorkers(build))]),
      );
      return (await all(dead.orderBy("id"))).map(toRecord);
    },
    countOpen: async (apiKeyId) => {
      const open = build
        .selectFrom("realtime_holds")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("api_key_id", "=", apiKeyId)
        .where("worker", "in", liveWorkers(build));
      return (await first(open))?.count ?? 0;
    },
    isOpen: async (id) => {
      const open = holds().where("id", "=", id).where("worker", "in", liveWorkers(build));
      return { isOpen: (await first(open)) !== null };
    },
    list: async () => (await all(holds().orderBy("created_at_ms").orderBy("id"))).map(toRecord),
  };
}

function toRecord(row: Selectable<Database["realtime_holds"]>): RealtimeHoldRecord {
  return {
    id: row.id,
    apiKeyId: row.api_key_id,
    accountId: row.account_id,
    amountMicroUsd: row.amount_micro_usd,
    createdAtMs: row.created_at_ms,
    worker: row.worker,
  };
}
