import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import { moveMoney } from "./billing/ledger.ts";
import { keyRecord } from "./keys.ts";
import type { Repositories } from "./ports/stores.ts";
import type { AccountRecord, ApiKeyRecord } from "./records.ts";

/** The account of the key for this machine, and of every key that names no other. */
export const DEFAULT_ACCOUNT = "default";

/** The default account's first balance when every provider only simulates. It is not real money. */
const PLAY_MONEY_MICRO_USD = 1_000_000_000;

interface Deps {
  clock: Clock;
  ids: Ids;
}

/** Opens an account with a first balance, in micro-dollars. */
export async function openAccount(
  tx: Repositories,
  deps: Deps,
  account: { name: string; balanceMicroUsd: number },
): Promise<AccountRecord> {
  const id = deps.ids.recordId("acct");
  const createdAtMs = deps.clock.nowMs();
  await tx.accounts.insert({ id, name: account.name, createdAtMs });
  if (account.balanceMicroUsd > 0) await topUp(tx, deps, id, account.balanceMicroUsd);
  const { name, balanceMicroUsd } = account;
  return { id, name, balanceMicroUsd, heldMicroUsd: 0, createdAtMs };
}

/** Returns the account `default`. Makes it when it is missing, with or without play money as its first balance. */
export async function ensureDefaultAccount(
  tx: Repositories,
  deps: Deps,
  isPlayMoney: boolean,
): Promise<AccountRecord> {
  const balanceMicroUsd = isPlayMoney ? PLAY_MONEY_MICRO_USD : 0;
  return (
    (await tx.accounts.byName(DEFAULT_ACCOUNT)) ??
    (await openAccount(tx, deps, { name: DEFAULT_ACCOUNT, balanceMicroUsd }))
  );
}

/** Adds money to an account. */
export async function topUp(
  tx: Repositories,
  deps: Deps,
  accountId: string,
  amountMicroUsd: number,
): Promise<void> {
  const requestId = `top_up:${deps.ids.recordId("topup")}`;
  const movement = { requestId, accountId, batchId: null, kind: "top_up" as const, amountMicroUsd };
  await moveMoney(tx, movement, deps.clock.nowMs());
}

/** Makes a key and returns it. Only its hash is stored, so the key itself cannot be shown again. */
export async function issueKey(
  tx: Repositories,
  deps: Deps,
  facts: { name: string; accountId: string; group: string; expiresAtMs: number | null },
): Promise<ApiKeyRecord & { key: string }> {
  const key = deps.ids.apiKey();
  const id = deps.ids.recordId("key");
  const { sha256, ...record } = keyRecord(key, { ...facts, id, createdAtMs: deps.clock.nowMs() });
  await tx.keys.insert({ ...record, sha256 });
  return { ...record, key };
}
