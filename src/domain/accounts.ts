import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { type Ids, sha256Hex } from "../kernel/ids.ts";
import { moveMoney } from "./billing/ledger.ts";
import type { Repositories, Transaction } from "./ports/stores.ts";
import type { AccountRecord, ApiKeyRecord } from "./records.ts";

/** The account of the key for this machine, and of every key that names no other. */
export const DEFAULT_ACCOUNT = "default";

/** The default account's first balance when every provider only simulates. It is not real money. */
const PLAY_MONEY_MICRO_USD = 1_000_000_000;

interface Deps {
  clock: Clock;
  ids: Ids;
}

/**
 * Whether drawings cost the accounts of a service play money only: nobody has an account with real money but those whose own
 * has play money.
 */
export function paysDrawingsInPlay(accounts: readonly AccountRecord[]): boolean {
  const real = new Set(accounts.map(({ realAccountId }) => realAccountId));
  return accounts.every(({ id, isPlay }) => isPlay || real.has(id));
}

/** Opens an account with a first balance, in micro-dollars. Its money is real unless it is said to be play money. */
export async function openAccount(
  tx: Transaction,
  deps: Deps,
  account: { name: string; balanceMicroUsd: number; isPlay?: boolean },
): Promise<AccountRecord> {
  const id = deps.ids.recordId("acct");
  const createdAtMs = deps.clock.nowMs();
  const { name, balanceMicroUsd, isPlay = false } = account;
  await tx.accounts.insert({ id, name, createdAtMs, isPlay });
  if (balanceMicroUsd > 0) await topUp(tx, deps, id, balanceMicroUsd);
  return { id, name, balanceMicroUsd, heldMicroUsd: 0, createdAtMs, isPlay, realAccountId: null };
}

/** Returns the account with the real money of an account: itself, unless it has play money. Makes it when it is missing. */
export async function openRealAccount(
  tx: Transaction,
  deps: Deps,
  accountId: string,
): Promise<AccountRecord> {
  await tx.lock("account", accountId);
  const account = await tx.accounts.byId(accountId);
  if (!account) throw new Error(`there is no account ${accountId}`);
  if (!account.isPlay) return account;
  const known = account.realAccountId === null ? null : await tx.accounts.byId(account.realAccountId);
  if (known) return known;
  let name = `${account.name} (real)`;
  for (let n = 2; await tx.accounts.byName(name); n++) name = `${account.name} (real ${n})`;
  const real = await openAccount(tx, deps, { name, balanceMicroUsd: 0 });
  await tx.accounts.setRealAccount(accountId, real.id);
  return real;
}

/** Returns the account `default`. Makes it when it is missing, with or without play money as its first balance. */
export async function ensureDefaultAccount(
  tx: Transaction,
  deps: Deps,
  isPlay: boolean,
): Promise<AccountRecord> {
  const balanceMicroUsd = isPlay ? PLAY_MONEY_MICRO_USD : 0;
  return (
    (await tx.accounts.byName(DEFAULT_ACCOUNT)) ??
    (await openAccount(tx, deps, { name: DEFAULT_ACCOUNT, balanceMicroUsd, isPlay }))
  );
}

/** Adds money to an account. */
export async function topUp(
  tx: Transaction,
  deps: Deps,
  accountId: string,
  amountMicroUsd: number,
): Promise<void> {
  const requestId = `top_up:${deps.ids.recordId("topup")}`;
  const movement = { requestId, accountId, batchId: null, kind: "top_up" as const, amountMicroUsd };
  await moveMoney(tx, movement, deps.clock.nowMs());
}

const PREFIX_CHARS = 12;

/** Makes a key and returns it. Only its hash and first characters are stored, so the key itself cannot be shown again. */
export async function issueKey(
  tx: Transaction,
  deps: Deps,
  facts: { name: string; accountId: string; group: string; expiresAtMs: number | null },
): Promise<ApiKeyRecord & { key: string }> {
  const key = deps.ids.apiKey();
  const id = deps.ids.recordId("key");
  const made = { id, prefix: key.slice(0, PREFIX_CHARS), createdAtMs: deps.clock.nowMs() };
  const record = { ...facts, ...made, disabledAtMs: null, enabledAtMs: null };
  await tx.keys.insert({ ...record, sha256: sha256Hex(key) });
  return { ...record, key };
}

/** Returns the accounts that pay for a key: its own, and behind it the one with real money where its own has play money. */
export async function payingAccounts(
  now: Repositories,
  accountId: string,
): Promise<[own: AccountRecord, ...real: AccountRecord[]]> {
  const own = await now.accounts.byId(accountId);
  if (!own) throw new Error(`there is no account ${accountId}`);
  const real = own.realAccountId === null ? null : await now.accounts.byId(own.realAccountId);
  return real ? [own, real] : [own];
}

/** What a caller sees beside its own key's work, and what it may agree to. */
export interface Scope {
  /** Whose batches it sees and manages: those of its own key, or those of all keys. */
  keys: "own" | "all";
  /** It owns the service: it sees an upstream's own words, and looks after providers and workers. */
  isOwner: boolean;
  /** Its requests can carry the consent to pay of the person at this machine. */
  mayPay: boolean;
}

/**
 * The key that a request shows, when it is active. Looking up the hash makes the time independent of how much of a
 * guessed key is right. Throws `API_KEY_REQUIRED`, `INVALID_API_KEY` or `API_KEY_DISABLED`.
 */
export async function authenticate(
  repositories: Repositories,
  key: string | null,
  nowMs: number,
): Promise<ApiKeyRecord> {
  if (key === null) throw new ImgbatchError("API_KEY_REQUIRED");
  const record = await repositories.keys.bySha256(sha256Hex(key));
  if (!record) throw new ImgbatchError("INVALID_API_KEY");
  return active(record, nowMs);
}

/** The key of this id, when it is active. Throws `API_KEY_DISABLED`. */
export async function activeKey(
  repositories: Repositories,
  id: string,
  nowMs: number,
): Promise<ApiKeyRecord> {
  return active(await repositories.keys.byId(id), nowMs);
}

function active(key: ApiKeyRecord | null, nowMs: number): ApiKeyRecord {
  if (key === null || keyState(key, nowMs) !== "active") throw new ImgbatchError("API_KEY_DISABLED");
  return key;
}

/** Whether a key is accepted, and if not, why. A key that was disabled is called so even when it has also expired. */
export function keyState(key: ApiKeyRecord, nowMs: number): "active" | "disabled" | "expired" {
  if (key.disabledAtMs !== null) return "disabled";
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? "expired" : "active";
}
