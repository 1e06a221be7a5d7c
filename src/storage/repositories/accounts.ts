import type { Selectable } from "kysely";
import type { AccountRepository } from "../../domain/ports/stores.ts";
import type { AccountRecord } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

export function accountRepository({ build, first, all, run }: SqlSession): AccountRepository {
  const accounts = () => build.selectFrom("accounts").selectAll();
  return {
    insert: async ({ id, name, createdAtMs, isPlay = false }) => {
      const row = { id, name, created_at_ms: createdAtMs, is_play: isPlay ? 1 : 0 };
      await run(build.insertInto("accounts").values(row));
    },
    setRealAccount: async (id, realAccountId) => {
      await run(build.updateTable("accounts").set({ real_account_id: realAccountId }).where("id", "=", id));
    },
    byId: async (id) => toRecordOrNull(await first(accounts().where("id", "=", id))),
    byName: async (name) => toRecordOrNull(await first(accounts().where("name", "=", name))),
    list: async () => (await all(accounts().orderBy("created_at_ms").orderBy("id"))).map(toRecord),
    change: async (id, { balanceMicroUsd, heldMicroUsd }) => {
      const update = build
        .updateTable("accounts")
        .set((eb) => ({
          balance_micro_usd: eb("balance_micro_usd", "+", balanceMicroUsd),
          held_micro_usd: eb("held_micro_usd", "+", heldMicroUsd),
        }))
        .where("id", "=", id)
        .where("balance_micro_usd", ">=", -balanceMicroUsd);
      return { isEnough: (await run(update)) === 1 };
    },
  };
}

type Row = Selectable<Database["accounts"]>;

const toRecordOrNull = (row: Row | null) => row && toRecord(row);

function toRecord(row: Row): AccountRecord {
  return {
    id: row.id,
    name: row.name,
    balanceMicroUsd: row.balance_micro_usd,
    heldMicroUsd: row.held_micro_usd,
    createdAtMs: row.created_at_ms,
    isPlay: row.is_play === 1,
    realAccountId: row.real_account_id,
  };
}
