import type { Selectable } from "kysely";
import type { LedgerRepository } from "../../domain/ports/stores.ts";
import type { LedgerEntry, LedgerKind } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

const APPEND = kept((build, entry: Values<Omit<LedgerEntry, "seq">>) =>
  build
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
    .onConflict((conflict) => conflict.column("request_id").doNothing()),
);

export function ledgerRepository({ build, first, all, run }: SqlSession): LedgerRepository {
  const entries = () => build.selectFrom("ledger_entries").selectAll();
  return {
    append: async (entry) => ({ isNew: (await run(APPEND(build, entry))) === 1 }),
    byRequestId: async (requestId) => {
      const row = await first(entries().where("request_id", "=", requestId));
      return row && toRecord(row);
    },
    list: async ({ accountId, batchIds }) => {
      let query = entries().orderBy("seq");
      if (accountId !== undefined) query = query.where("account_id", "=", accountId);
      if (batchIds !== undefined) query = query.where("batch_id", "in", [...batchIds]);
      return (await all(query)).map(toRecord);
    },
    page: async ({ accountIds, beforeSeq = Number.MAX_SAFE_INTEGER, offset = 0, limit }) => {
      const before = entries().where("account_id", "in", accountIds).where("seq", "<", beforeSeq);
      return (await all(before.orderBy("seq", "desc").limit(limit).offset(offset))).map(toRecord);
    },
    changeAfter: async (accountId, seq) => {
      const later = build
        .selectFrom("ledger_entries")
        .select((eb) => eb.fn.sum<number | null>("balance_change_micro_usd").as("change"))
        .where("account_id", "=", accountId)
        .where("seq", ">", seq);
      return (await first(later))?.change ?? 0;
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
