import { existsSync } from "node:fs";
import { join } from "node:path";
import { LOCAL_STORAGE, type StoragePlaces } from "../config/storage-places.ts";
import { DATA_FILES } from "../contract/data-directory.ts";
import { ImgbatchError, isDatabaseDamage } from "../contract/errors.ts";
import { isTerminal } from "../contract/statuses.ts";
import {
  DEFAULT_ACCOUNT,
  ensureDefaultAccount,
  issueKey,
  keyState,
  openAccount,
  openRealAccount,
  paysDrawingsInPlay,
  topUp,
} from "../domain/accounts.ts";
import {
  ALL_ACCOUNTS,
  type BudgetState,
  EACH_ACCOUNT,
  periodOf,
  scopeOfUpstream,
  stateOf,
  upstreamOf,
} from "../domain/billing/budget.ts";
import { brokenBatches, checkInvariants } from "../domain/check-invariants.ts";
import { CALLS_EVERY_MS, type CallSums, sumCalls } from "../domain/health/calls.ts";
import type { Repositories, Stores } from "../domain/ports/stores.ts";
import type {
  AccountRecord,
  ApiKeyRecord,
  BudgetRecord,
  LedgerEntry,
  SpentRecord,
} from "../domain/records.ts";
import { prune } from "../domain/retention.ts";
import type { Clock } from "../kernel/clock.ts";
import { type Ids, randomIds } from "../kernel/ids.ts";
import { groupBy } from "../kernel/json.ts";
import { systemCodeOf } from "../kernel/system-errors.ts";
import { withApiCode } from "../server/http/errors.ts";
import { removeUnknown, removeUnnamed } from "../workers/scheduler.ts";
import { type OpenStorage, openStorage } from "./storage/open-storage.ts";

export { DEFAULT_ACCOUNT };
export type Account = AccountRecord;
export type Key = ApiKeyRecord & { accountName: string; state: ReturnType<typeof keyState> };
/** An entry with the balance of its account after it. */
export type LedgerLine = LedgerEntry & { accountName: string; isPlay: boolean; balanceMicroUsd: number };

/** `key`: the day as `2030-01-31`, the model, or the provider. */
export type UsageLine = CallSums & {
  key: string;
  /** The part of the billed money that is play money. No upstream asks for it, so `unreportedMicroUsd` is without it. */
  playMicroUsd: number;
};

interface NewKey {
  name: string;
  accountName: string;
  group: string;
  expiresAtMs: number | null;
  /** Whether a default account that is made for this key starts with play money: every provider only simulates. */
  isPlayMoney: boolean;
}

/** Administers an open data directory. Methods return null for an unknown name or id. */
export interface Admin {
  /** True when the database was made now. */
  isNew: boolean;
  accounts(): Promise<Account[]>;
  account(name: string): Promise<Account | null>;
  /** Null when the name is taken. */
  createAccount(account: { name: string; balanceMicroUsd: number }): Promise<Account | null>;
  /**
   * Returns null for an unknown account. If the new balance could not be counted exactly, it changes nothing and
   * returns the largest possible amount. The money goes to the real account of an account with play money, with `isReal` or
   * when there is one already.
   */
  topUp(
    name: string,
    amountMicroUsd: number,
    options?: { isReal?: boolean },
  ): Promise<Account | { mostMicroUsd: number } | null>;
  keys(): Promise<Key[]>;
  /** Makes the missing account `default` for its first key, as the first start would. */
  createKey(key: NewKey): Promise<(Key & { key: string }) | null>;
  /** Takes effect with the next request of a running service. Disabling again keeps the first time. */
  setKeyDisabled(id: string, isDisabled: boolean): Promise<Key | null>;
  hasBatch(id: string): Promise<boolean>;
  /** In order of time. Entries of the given batches only, or all. */
  ledger(filter: {
    accountId?: string | undefined;
    batchIds?: readonly string[] | undefined;
  }): Promise<LedgerLine[]>;
  /**
   * The requests to providers, in the order of the keys. Sums are kept for 5 minutes each: those that hold `fromMs` and
   * those that begin before `beforeMs` count whole.
   */
  usage(filter: {
    /** A day is one of UTC. */
    by: "day" | "model" | "provider";
    fromMs?: number | undefined;
    beforeMs?: number | undefined;
    /** The names of the providers that draw. */
    drawings: ReadonlySet<string>;
  }): Promise<UsageLine[]>;
  /** How the budgets stand, and what was spent in each of the last months, the newest first. */
  budgets(months: number): Promise<{ budgets: Budget[]; months: MonthSpent[] }>;
  /** Sets the budget of an upstream, or of all together (null). `budget` null: there is none any more. */
  setBudget(upstream: string | null, budget: Omit<BudgetRecord, "scope"> | null): Promise<void>;
  /** Throws `INVALID_CONFIG` for the bucket of another database. See `checkInvariants`. */
  check(onProgress?: (text: string) => void): ReturnType<typeof checkInvariants>;
  /** See `repairStorage`. Throws as `check` does, and `STORAGE_FAILED` for a damaged database. */
  repair(): ReturnType<typeof repairStorage>;
  /** See `prune`. Throws `INVALID_CONFIG` for the bucket of another database. */
  prune(options: { olderMs: number; isDryRun: boolean }): ReturnType<typeof prune>;
  close(): Promise<void>;
}

/** A budget, and how it stands. */
export interface Budget extends Omit<BudgetState, "scope"> {
  /** The provider that it is for; null for all. */
  upstream: string | null;
  /** Whether each account may spend it. */
  isOfEachAccount: boolean;
}

/** The real money of one upstream and one run (null in real time) in a month such as `2026-11`. */
export interface MonthSpent extends Pick<SpentRecord, "provider" | "run" | "microUsd"> {
  month: string;
}

interface RepairReport {
  /** How many files were removed that no row names. */
  files: number;
  /** The batches whose counts of successes and failures were corrected. */
  batchIds: string[];
}

/** Younger files may be those of a request or an image that a running service is about to record. */
const ABANDONED_MS = 3_600_000;

/**
 * Repairs what can be repaired for certain, also while services run: counts of batches that differ from their items, and files
 * that no row names. Money, histories, and images that are lost or damaged stay as they are. A second call finds nothing.
 */
async function repairStorage(deps: Pick<OpenStorage, "stores" | "blobs">): Promise<RepairReport> {
  const batchIds = await repairCounts(deps);
  return { batchIds, files: (await removeOutputs(deps)) + (await removeUnknown(deps, ABANDONED_MS)) };
}

async function repairCounts({ stores }: Pick<OpenStorage, "stores">): Promise<string[]> {
  const repaired: string[] = [];
  const broken: string[] = [];
  for await (const { batches } of brokenBatches(stores.read)) broken.push(...batches.map(({ id }) => id));
  for (const id of broken) {
    const isRepaired = await stores.write(async (tx) => {
      const batch = await tx.batches.locked(id);
      if (batch === null) return false;
      const { pending, success, failed } = await tx.items.countByStatus(id);
      // If the items do not add up, the items are wrong, and the counts may be right.
      const isWhole = pending + success + failed === batch.itemCount;
      if (!isWhole || (pending > 0 && isTerminal(batch.status))) return false;
      const change = { id, success: success - batch.successCount, fail: failed - batch.failCount };
      if (change.success === 0 && change.fail === 0) return false;
      await tx.batches.addCounts(change);
      return true;
    });
    if (isRepaired) repaired.push(id);
  }
  return repaired;
}

/** Removes images that no row names, unless a worker may be about to record them. */
async function removeOutputs({ stores, blobs }: Pick<OpenStorage, "stores" | "blobs">): Promise<number> {
  let removed = 0;
  const listed = (await blobs.list("outputs/")).filter(({ ageMs }) => ageMs >= ABANDONED_MS);
  for (const [id, some] of groupBy(listed, ({ key }) => key.split("/")[1] ?? "")) {
    const batch = await stores.read.batches.byId(id);
    if (batch !== null && !isTerminal(batch.status)) continue;
    removed += await removeUnnamed({ stores, blobs }, id, some);
  }
  return removed;
}

interface AdminOptions {
  directory: string;
  /** Default: SQLite and files of the directory. */
  storage?: StoragePlaces | undefined;
  /** Makes the database when there is none, for a directory that is prepared before its first start. */
  mayCreate?: boolean;
  /** For tests. Defaults: the clock of the storage and random ids. */
  clock?: Clock;
  ids?: Ids;
}

/** A file is in the way, or the directory may not be written. */
const FILE_PROBLEMS = new Set(["EEXIST", "ENOTDIR", "EACCES", "EPERM", "EROFS", "SQLITE_CANTOPEN"]);

/**
 * Opens a data directory, or a shared database and its bucket, for administration, also while services run on it: no lock is taken.
 */
export async function openAdmin(options: AdminOptions): Promise<Admin> {
  const { directory, storage = LOCAL_STORAGE, mayCreate = false } = options;
  const { ids = randomIds } = options;
  const isLocal = storage.database.kind === "sqlite";
  const isNew = isLocal && !existsSync(join(directory, DATA_FILES.database));
  if (isNew && !mayCreate) {
    const message = `${directory} is not a data directory: it has no ${DATA_FILES.database}`;
    throw new ImgbatchError("USAGE", message);
  }
  const data = await openStorage(storage, {
    directory,
    isPatient: true,
    ...(options.clock ? { clock: options.clock } : {}),
  }).catch((error: Error) => {
    const problem = (error instanceof ImgbatchError ? error.cause : error) as
      | NodeJS.ErrnoException
      | undefined;
    if (!isNew || !FILE_PROBLEMS.has(problem?.code ?? "")) throw withApiCode(error);
    throw new ImgbatchError("USAGE", `${directory} cannot be made a data directory: ${problem?.message}`);
  });
  return { isNew, ...adminOf(data, { clock: options.clock ?? data.clock, ids }) };
}

function adminOf(data: OpenStorage, deps: { clock: Clock; ids: Ids }): Omit<Admin, "isNew"> {
  const { stores } = data;
  const write: Stores["write"] = (work) =>
    stores.write(work).catch((error) => {
      throw withApiCode(error);
    });
  return {
    accounts: () => stores.read.accounts.list(),
    account: (name) => stores.read.accounts.byName(name),
    createAccount: (account) =>
      write(async (tx) =>
        (await tx.accounts.byName(account.name)) ? null : await openAccount(tx, deps, account),
      ),
    topUp: (name, amountMicroUsd, { isReal = false } = {}) =>
      write(async (tx) => {
        const named = await tx.accounts.byName(name);
        if (!named) return null;
        const account =
          isReal || named.realAccountId !== null ? await openRealAccount(tx, deps, named.id) : named;
        const mostMicroUsd = mostToAdd(account);
        if (amountMicroUsd > mostMicroUsd) return { mostMicroUsd };
        await topUp(tx, deps, account.id, amountMicroUsd);
        return tx.accounts.byId(account.id);
      }),
    keys: () =>
      stores.snapshot(async (now) => {
        const keys: Key[] = [];
        for (const key of await now.keys.list()) keys.push(await describeKey(now, key, deps.clock));
        return keys;
      }),
    createKey: ({ accountName, isPlayMoney, ...facts }) =>
      write(async (tx) => {
        const isDefault = accountName === DEFAULT_ACCOUNT;
        const account = isDefault
          ? await ensureDefaultAccount(tx, deps, isPlayMoney)
          : await tx.accounts.byName(accountName);
        if (!account) return null;
        const { key, ...record } = await issueKey(tx, deps, { ...facts, accountId: account.id });
        return { ...(await describeKey(tx, record, deps.clock)), key };
      }),
    setKeyDisabled: (id, isDisabled) =>
      write(async (tx) => {
        const before = await tx.keys.byId(id);
        if (!before) return null;
        const nowMs = deps.clock.nowMs();
        if (isDisabled) await tx.keys.setDisabled(id, before.disabledAtMs ?? nowMs);
        else if (before.disabledAtMs !== null) await tx.keys.setEnabled(id, nowMs);
        return describeKey(tx, (await tx.keys.byId(id)) ?? before, deps.clock);
      }),
    hasBatch: async (id) => (await stores.read.batches.byId(id)) !== null,
    ledger: ({ accountId, batchIds }) =>
      stores.snapshot(async (now) => {
        const lines = await withBalances(
          now,
          await now.ledger.list(accountId === undefined ? {} : { accountId }),
        );
        return lines.filter(({ batchId }) => !batchIds || (batchId !== null && batchIds.includes(batchId)));
      }),
    budgets: async (count) => {
      const nowMs = deps.clock.nowMs();
      const budgets: Budget[] = [];
      for (const record of await stores.read.budgets.list()) {
        const { scope, ...state } = await stateOf(stores.read, record, nowMs);
        budgets.push({ ...state, upstream: upstreamOf(scope), isOfEachAccount: scope === EACH_ACCOUNT });
      }
      const months: MonthSpent[] = [];
      for (let at = 0, { fromMs, beforeMs } = periodOf("month", nowMs); at < count; at++) {
        const month = new Date(fromMs).toISOString().slice(0, 7);
        const groups = groupBy(await stores.read.budgets.spent({ fromMs, beforeMs }), ({ provider, run }) =>
          JSON.stringify([provider, run]),
        );
        for (const [key, group] of [...groups].sort(([a], [b]) => (a < b ? -1 : 1))) {
          const [provider, run] = JSON.parse(key) as [string, string | null];
          months.push({
            month,
            provider,
            run,
            microUsd: group.reduce((sum, each) => sum + each.microUsd, 0),
          });
        }
        ({ fromMs, beforeMs } = periodOf("month", fromMs - 1));
      }
      return { budgets, months };
    },
    setBudget: (upstream, budget) => {
      const scope = upstream === null ? ALL_ACCOUNTS : scopeOfUpstream(upstream);
      return write((tx) =>
        budget === null ? tx.budgets.remove(scope) : tx.budgets.put({ scope, ...budget }),
      );
    },
    usage: async ({ by, fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER, drawings }) => {
      const isPlay = paysDrawingsInPlay(await stores.read.accounts.list());
      const calls = await stores.read.providerCalls.list({
        fromMs: fromMs - (fromMs % CALLS_EVERY_MS),
        beforeMs,
      });
      const groups = new Map<string, typeof calls>();
      for (const call of calls) {
        const key = by === "day" ? new Date(call.dayMs).toISOString().slice(0, 10) : call[by];
        groups.set(key, [...(groups.get(key) ?? []), call]);
      }
      const lines = [...groups].map(([key, each]) => {
        const played = isPlay ? each.filter(({ provider }) => drawings.has(provider)) : [];
        const sums = sumCalls(each);
        const playMicroUsd = sumCalls(played).billedMicroUsd;
        return { key, ...sums, unreportedMicroUsd: sums.unreportedMicroUsd - playMicroUsd, playMicroUsd };
      });
      return lines.sort((a, b) => (a.key < b.key ? -1 : 1));
    },
    check: (onProgress) => checkAll(data, onProgress),
    repair: async () => {
      const [problem] = await data.integrityProblems().catch((error) => [damageOf(error).message]);
      if (problem !== undefined) {
        const message = `The database file is damaged, and so nothing was repaired: ${problem}.`;
        throw new ImgbatchError("STORAGE_FAILED", message);
      }
      await data.refuseForeignBucket();
      return repairStorage(data).catch((error) => {
        throw withApiCode(error);
      });
    },
    prune: async ({ olderMs, isDryRun }) => {
      await data.refuseForeignBucket();
      const nowMs = deps.clock.nowMs();
      return prune(data, { nowMs, endedBeforeMs: nowMs - olderMs, isDryRun });
    },
    close: () => data.close(),
  };
}

/** Checks the database file first: its content can be read only as far as the file is intact. */
async function checkAll(
  data: OpenStorage,
  onProgress: (text: string) => void = () => {},
): ReturnType<typeof checkInvariants> {
  onProgress("checking the database");
  const ofFile = await data.integrityProblems().catch(damageOf);
  const problems = Array.isArray(ofFile) ? ofFile : [`the database file is damaged: ${ofFile.message}`];
  try {
    await data.refuseForeignBucket();
    const report = await checkInvariants(data.stores, data.blobs, onProgress);
    return { ...report, problems: [...problems, ...report.problems] };
  } catch (error) {
    // The check of the file covers neither JSON in a column (a syntax error) nor the names of tables and columns.
    const isDamage = isDatabaseDamage(error) || error instanceof SyntaxError || isNameLost(error);
    if (!isDamage && problems.length === 0) throw error;
    const rest = `accounts, batches and images could not be checked: ${(error as Error).message}`;
    return { accounts: 0, batches: 0, images: 0, problems: [...problems, rest] };
  }
}

/** Whether SQLite misses a table or a column of ours. */
const isNameLost = (error: unknown) =>
  error instanceof Error &&
  systemCodeOf(error) === "SQLITE_ERROR" &&
  /^no such (table|column)/.test(error.message);

/** Throws every error that does not report a damaged file. */
function damageOf(error: Error): Error {
  if (isDatabaseDamage(error)) return error;
  throw error;
}

/** The held amount may come back to the balance, so their sum must stay a safe integer. */
function mostToAdd({ balanceMicroUsd, heldMicroUsd }: Account): number {
  return Number.MAX_SAFE_INTEGER - balanceMicroUsd - heldMicroUsd;
}

async function describeKey(
  now: Pick<Repositories, "accounts">,
  key: ApiKeyRecord,
  clock: Clock,
): Promise<Key> {
  return { ...key, accountName: await nameOf(now, key.accountId), state: keyState(key, clock.nowMs()) };
}

/** Needs every entry of each account from its first on. */
async function withBalances(now: Repositories, entries: readonly LedgerEntry[]): Promise<LedgerLine[]> {
  const balances = new Map<string, number>();
  const accounts = new Map((await now.accounts.list()).map((account) => [account.id, account]));
  return entries.map((entry) => {
    const balanceMicroUsd = (balances.get(entry.accountId) ?? 0) + entry.balanceChangeMicroUsd;
    balances.set(entry.accountId, balanceMicroUsd);
    const { name: accountName = entry.accountId, isPlay = false } = accounts.get(entry.accountId) ?? {};
    return { ...entry, accountName, isPlay, balanceMicroUsd };
  });
}

/** The database ensures that every key has an account. */
async function nameOf(now: Pick<Repositories, "accounts">, accountId: string): Promise<string> {
  return (await now.accounts.byId(accountId))?.name ?? accountId;
}
