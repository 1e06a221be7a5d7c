import type { Selectable } from "kysely";
import type { LedgerRepository } from "../../domain/ports/stores.ts";
import type { LedgerEntry, LedgerKind } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

export function ledgerRepository({ build, first, all, run }: SqlSession): LedgerRepository {
  const entries = () => build.selectFrom("ledger_entries").selectAll();
  return {
    append: async (entry) => {
      const insert = build
        .insertInto("ledger_entries")
        .values({
          request_id: entry.requestId,
          account_id: entry.accountId,
          batch_id: entry.batchId,
          kind: entry.kind,
          amount_micro_usd: entry.amountMicroUsd,
          balance_change_micro_usd: entry.balanceChangeMicroUsd,
          held_change_micro_usd: entry.heldChangeMicroUsd,
          created_at_ms: entry.createdAtMs,
        })
        .onConflict((conflict) => conflict.column("request_id").doNothing());
      return { isNew: (await run(insert)) === 1 };
    },
    byRequestId: async (requestId) => {
      const row = await first(entries().where("request_id", "=", requestId));
      return row && toRecord(row);
    },
    list: async ({ accountId, batchId }) => {
      let query = entries().orderBy("seq");
      if (accountId !== undefined) query = query.where("account_id", "=", accountId);
      if (batchId !== undefined) query = query.where("batch_id", "=", batchId);
      return (await all(query)).map(toRecord);
    },
  };
}

function toRecord(row: Selectable<Database["ledger_entries"]>): LedgerEntry {
  return {
    seq: row.seq,
    requestId: row.request_id,
    accountId: row.account_id,
    batchId: row.batch_id,
    kind: row.kind as LedgerKind,
    amountMicroUsd: row.amount_micro_usd,
    balanceChangeMicroUsd: row.balance_change_micro_usd,
    heldChangeMicroUsd: row.held_change_micro_usd,
    createdAtMs: row.created_at_ms,
  };
}
