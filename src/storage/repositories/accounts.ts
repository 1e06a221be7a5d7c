import type { Selectable } from "kysely";
import type { AccountRepository } from "../../domain/ports/stores.ts";
import type { AccountRecord } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

const BY_ID = kept((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("accounts").selectAll().where("id", "=", id),
);

const CHANGE = kept((build, { id, balance, held, least }: Values<Change>) =>
  build
    .updateTable("accounts")
    .set((eb) => ({
      balance_micro_usd: eb("balance_micro_usd", "+", balance),
      held_micro_usd: eb("held_micro_usd", "+", held),
    }))
    .where("id", "=", id)
    .where("balance_micro_usd", ">=", least),
);

interface Change {
  id: string;
  balance: number;
  held: number;
  /** The smallest balance that is enough. */
  least: number;
}

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
    byId: async (id) => toRecordOrNull(await first(BY_ID(build, { id }))),
    byName: async (name) => toRecordOrNull(await first(accounts().where("name", "=", name))),
    list: async () => (await all(accounts().orderBy("created_at_ms").orderBy("id"))).map(toRecord),
    change: async (id, { balanceMicroUsd, heldMicroUsd }) => {
      const update = CHANGE(build, {
        id,
        balance: balanceMicroUsd,
        held: heldMicroUsd,
        least: -balanceMicroUsd,
      });
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
