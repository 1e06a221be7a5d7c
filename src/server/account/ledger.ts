import type { Request, Response } from "express";
import type { LedgerEntryObject } from "../../contract/console-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { AccountRecord, LedgerEntry } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { pagingBy } from "../query/cursor.ts";
import { queryInteger } from "../query/query.ts";
import { payingAccounts } from "./accounts.ts";

const paging = pagingBy("l", ["seq"]);

/**
 * `GET /v1/ledger`: every movement of money of the key's account, newest first, a page at a time. An account can have
 * several keys: the list has the movements of all keys, and does not name batches of the others.
 */
export function ledger({ stores }: Pick<ApiDeps, "stores">) {
  return async (request: Request, response: Response): Promise<void> => {
    const { ledgerPageDefault, ledgerPageMax } = FIXED_LIMITS;
    const limit = queryInteger(request, "limit", { fallback: ledgerPageDefault, min: 1, max: ledgerPageMax });
    const { after, offset = 0 } = paging.start(request);
    const { id: apiKeyId, accountId } = callerOf(response).key;
    const lines = await stores.snapshot(async (now) => {
      const accounts = await payingAccounts(now, accountId);
      const accountIds = accounts.map(({ id }) => id);
      const page = { accountIds, beforeSeq: after?.seq, offset, limit: limit + 1 };
      const entries = await now.ledger.page(page);
      const own = await ownBatches(now, apiKeyId, entries);
      return withBalances(now, accounts, entries, own);
    });
    response.json(paging.page(lines, limit, ({ view }) => view));
  };
}

async function withBalances(
  now: Repositories,
  accounts: readonly AccountRecord[],
  entries: readonly LedgerEntry[],
  own: ReadonlySet<string>,
): Promise<{ seq: number; view: LedgerEntryObject }[]> {
  const newest = entries[0]?.seq ?? 0;
  const balances = new Map<string, { microUsd: number; isPlay: boolean }>();
  for (const { id, balanceMicroUsd, isPlay } of accounts) {
    balances.set(id, { microUsd: balanceMicroUsd - (await now.ledger.changeAfter(id, newest)), isPlay });
  }
  return entries.map((entry) => {
    const { microUsd, isPlay } = balances.get(entry.accountId) ?? { microUsd: 0, isPlay: false };
    balances.set(entry.accountId, { microUsd: microUsd - entry.balanceChangeMicroUsd, isPlay });
    return { seq: entry.seq, view: entryView(entry, { microUsd, isPlay }, own) };
  });
}

function entryView(
  entry: LedgerEntry,
  { microUsd, isPlay }: { microUsd: number; isPlay: boolean },
  own: ReadonlySet<string>,
): LedgerEntryObject {
  const { kind, batchId } = entry;
  return {
    kind,
    amount: microsToNumber(entry.amountMicroUsd),
    balance_change: microsToNumber(entry.balanceChangeMicroUsd),
    held_change: microsToNumber(entry.heldChangeMicroUsd),
    balance: microsToNumber(microUsd),
    play_money: isPlay,
    batch_id: batchId !== null && own.has(batchId) ? batchId : null,
    created_at: Math.floor(entry.createdAtMs / 1000),
  };
}

/** Returns which of the batches of these entries the key made. */
async function ownBatches(
  now: Repositories,
  apiKeyId: string,
  entries: readonly LedgerEntry[],
): Promise<Set<string>> {
  const own = new Set<string>();
  for (const id of new Set(entries.flatMap(({ batchId }) => batchId ?? []))) {
    if ((await now.batches.byId(id))?.apiKeyId === apiKeyId) own.add(id);
  }
  return own;
}
