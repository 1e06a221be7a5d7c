import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import { moveMoney } from "./billing/ledger.ts";
import { keyRecord } from "./keys.ts";
import type { Repositories } from "./ports/stores.ts";
import type { AccountRecord, ApiKeyRecord } from "./records.ts";

interface Deps {
  clock: Clock;
  ids: Ids;
}

/** Opens an account with a first balance, in micro-dollars. */
export function openAccount(
  tx: Repositories,
  deps: Deps,
  account: { name: string; balanceMicroUsd: number },
): AccountRecord {
  const id = deps.ids.recordId("acct");
  const createdAtMs = deps.clock.nowMs();
  tx.accounts.insert({ id, name: account.name, createdAtMs });
  if (account.balanceMicroUsd > 0) topUp(tx, deps, id, account.balanceMicroUsd);
  const { name, balanceMicroUsd } = account;
  return { id, name, balanceMicroUsd, heldMicroUsd: 0, createdAtMs };
}

/** Adds money to an account. */
export function topUp(tx: Repositories, deps: Deps, accountId: string, amountMicroUsd: number): void {
  const requestId = `top_up:${deps.ids.recordId("topup")}`;
  const movement = { requestId, accountId, batchId: null, kind: "top_up" as const, amountMicroUsd };
  moveMoney(tx, movement, deps.clock.nowMs());
}

/** Makes a key. The answer holds the key itself: the only time that it is known. */
export function issueKey(
  tx: Repositories,
  deps: Deps,
  facts: { name: string; accountId: string; group: string; expiresAtMs: number | null },
): ApiKeyRecord & { key: string } {
  const key = deps.ids.apiKey();
  const id = deps.ids.recordId("key");
  const { sha256, ...record } = keyRecord(key, { ...facts, id, createdAtMs: deps.clock.nowMs() });
  tx.keys.insert({ ...record, sha256 });
  return { ...record, key };
}
