import { ImgbatchError } from "../../contract/errors.ts";
import { readImageHeader, tierOf } from "../../contract/image-formats.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import { amountText } from "../../kernel/money.ts";
import { DEFAULT_ACCOUNT, openRealAccount } from "../accounts.ts";
import { requireBudget } from "../billing/budget.ts";
import { grant, moveMoney, takeBack } from "../billing/ledger.ts";
import { cannotPay, type Payer } from "../billing/payer.ts";
import { type Call, recordCalls } from "../health/calls.ts";
import type { ImageRequest } from "../ports/image-provider.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import {
  type AccountRecord,
  heldForImages,
  type LedgerEntry,
  type LostCall,
  type RealtimeHoldRecord,
  type UsageRecord,
} from "../records.ts";

const WINDOW_MS = 60_000;
const BUSY_RETRY_MS = 1000;

/** The limits of a key in real time; 0 sets no limit. */
export interface RequestRate {
  requestsPerMinute: number;
  concurrentRequests: number;
}

/**
 * Counts a request whose hold was just written among those of all processes, by whole seconds. Throws `RATE_LIMITED`, which undoes
 * both.
 */
export async function countRequest(
  tx: Transaction,
  apiKeyId: string,
  { requestsPerMinute, concurrentRequests }: RequestRate,
  nowMs: number,
): Promise<void> {
  if (requestsPerMinute === 0 && concurrentRequests === 0) return;
  await tx.lock("key", apiKeyId);
  if (concurrentRequests > 0) {
    const others = (await tx.realtimeHolds.countOpen(apiKeyId)) - 1;
    if (others >= concurrentRequests) {
      const message = `This key has ${others} requests running; ${concurrentRequests} are allowed at once.`;
      throw new ImgbatchError("RATE_LIMITED", message, { retryAfterMs: BUSY_RETRY_MS });
    }
  }
  if (requestsPerMinute === 0) return;
  const second = Math.floor(nowMs / 1000);
  const oldestSecond = second + 1 - WINDOW_MS / 1000;
  const { count, firstSecond } = await tx.requestCounts.since(apiKeyId, oldestSecond);
  if (count >= requestsPerMinute) {
    const message = `This key may begin ${requestsPerMinute} requests a minute.`;
    const retryAfterMs = Math.max(1, (firstSecond ?? second) * 1000 + WINDOW_MS - nowMs);
    throw new ImgbatchError("RATE_LIMITED", message, { retryAfterMs });
  }
  await tx.requestCounts.add(apiKeyId, second, oldestSecond);
}

/** Writes what belongs to a movement of money, in its transaction. */
type Alongside = (tx: Transaction) => Promise<void>;

const NOTHING: Alongside = async () => {};

const DRAWN = { consentMicroUsd: null, isUpstream: false };

/** The error of a request that ends because other processes took its process for dead, before it cost anything. */
export function heartbeatLost(): ImgbatchError {
  const message =
    "This process of the service lost touch with the others and begins anew; nothing was made or billed.";
  return new ImgbatchError("REALTIME_STOPPING", message);
}

/**
 * Takes the price of a request out of the balance before anything is made. The money may be granted for it, at most as
 * much as the consent allows. `what` is the subject of the error's sentence: by default, one image. Throws
 * `REALTIME_INSUFFICIENT_BALANCE`, and `REALTIME_STOPPING` when the worker is not alive.
 */
export function openHold(
  stores: Stores,
  hold: RealtimeHoldRecord,
  { consentMicroUsd, isUpstream }: Pick<Payer, "consentMicroUsd" | "isUpstream"> = DRAWN,
  { what = "The image", alongside = NOTHING }: { what?: string; alongside?: Alongside } = {},
): Promise<void> {
  const refuse = (limit: Parameters<typeof cannotPay>[3]) =>
    cannotPay("REALTIME_INSUFFICIENT_BALANCE", what, hold.amountMicroUsd, limit);
  return stores.write(async (tx) => {
    if (consentMicroUsd !== null && hold.amountMicroUsd > consentMicroUsd) throw refuse({ consentMicroUsd });
    if (!(await tx.workers.isAlive(hold.worker)).isAlive) throw heartbeatLost();
    await tx.realtimeHolds.insert(hold);
    await requireBudget(tx, hold.accountId, heldForImages(hold), hold.createdAtMs, aboveBudget);
    await alongside(tx);
    if (consentMicroUsd !== null) await grant(tx, hold, null, hold.amountMicroUsd, hold.createdAtMs);
    await moveMoney(tx, movementOf(hold, "hold"), hold.createdAtMs, ({ balanceMicroUsd, isPlay }) => {
      if (isUpstream) return refuse({ balanceMicroUsd });
      const [cost, balance] = [hold.amountMicroUsd, balanceMicroUsd].map((micros) =>
        amountText({ micros, isPlay }),
      );
      const message = `${what} costs ${cost}, the balance is ${balance}.`;
      return new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);
    });
  });
}

const aboveBudget = (message: string) => new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);

/**
 * Stores which call counts for an image from now on, and lets the budget of its provider count what it holds. Does nothing
 * when the hold has ended. Throws `REALTIME_INSUFFICIENT_BALANCE` above that budget, which changes nothing.
 */
export function moveHold(
  stores: Stores,
  { id }: Pick<RealtimeHoldRecord, "id">,
  index: number,
  call: LostCall | null,
  nowMs: number,
): Promise<void> {
  return stores.write(async (tx) => {
    const open = await tx.realtimeHolds.remove(id);
    if (open === null) return;
    const { [index]: _before, ...lostCalls } = open.lostCalls ?? {};
    await tx.realtimeHolds.insert({ ...open, lostCalls: call ? { ...lostCalls, [index]: call } : lostCalls });
    if (call === null) return;
    const held = [{ provider: call.provider, microUsd: call.heldMicroUsd }];
    await requireBudget(tx, open.accountId, held, nowMs, aboveBudget);
  });
}

/**
 * Ends a hold, once: the amounts of the usage records are captured, the rest goes back to the balance. When other processes
 * have released the hold, because they took this one for dead, the amounts are charged to the balance instead. The
 * records, the calls to providers and the money are one transaction. Throws `REALTIME_INSUFFICIENT_BALANCE` when the
 * balance does not pay such a charge: then nobody may get the images.
 */
export function endHold(
  stores: Stores,
  hold: RealtimeHoldRecord,
  usage: readonly UsageRecord[],
  calls: readonly Call[],
  nowMs: number,
  alongside = NOTHING,
): Promise<void> {
  return stores.write(async (tx) => {
    const { isOpen } = await close(tx, hold);
    if (!isOpen && (await isPaidFor(tx, hold))) return;
    await alongside(tx);
    const amountMicroUsd = usage.reduce((sum, record) => sum + record.amountMicroUsd, 0);
    const rest = hold.amountMicroUsd - amountMicroUsd;
    if (usage.length > 0) {
      if (isOpen) await moveMoney(tx, { ...movementOf(hold, "capture"), amountMicroUsd }, nowMs);
      else
        await moveMoney(tx, { ...movementOf(hold, "charge"), amountMicroUsd }, nowMs, (account) =>
          cannotCharge(amountMicroUsd, account),
        );
    }
    if (isOpen && (usage.length === 0 || rest > 0)) await release(tx, hold, rest, nowMs);
    await tx.usage.insertMany(usage);
    await recordCalls(tx, calls, nowMs);
  });
}

/** Removes the record of a hold. A transaction that places it may still be about to end: it has the account until then. */
async function close(tx: Transaction, { id, accountId }: RealtimeHoldRecord): Promise<{ isOpen: boolean }> {
  if ((await tx.realtimeHolds.remove(id)) !== null) return { isOpen: true };
  await tx.lock("account", accountId);
  return { isOpen: (await tx.realtimeHolds.remove(id)) !== null };
}

/** Whether an earlier call has captured or charged the amounts. */
async function isPaidFor(tx: Transaction, hold: RealtimeHoldRecord): Promise<boolean> {
  for (const kind of ["capture", "charge"] as const) {
    if ((await tx.ledger.byRequestId(movementOf(hold, kind).requestId)) !== null) return true;
  }
  return false;
}

function cannotCharge(
  amountMicroUsd: number,
  { balanceMicroUsd, isPlay }: Pick<AccountRecord, "balanceMicroUsd" | "isPlay">,
): ImgbatchError {
  const [cost, balance] = [amountMicroUsd, balanceMicroUsd].map((micros) => amountText({ micros, isPlay }));
  const message = `The service lost the hold of this request while it was made, and the balance of ${balance} does not pay its ${cost} any more. Nothing is billed; an upstream may have been paid.`;
  return new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);
}

/**
 * Releases the holds that processes left open when they died, and counts the calls whose answers were lost. Returns how many holds
 * there were.
 */
export async function releaseDeadHolds(stores: Stores, nowMs: number): Promise<number> {
  const dead = await stores.read.realtimeHolds.abandoned();
  if (dead.length === 0) return 0;
  return stores.write(async (tx) => {
    for (const { id } of dead) {
      const hold = await tx.realtimeHolds.remove(id);
      if (hold === null) continue;
      await release(tx, hold, hold.amountMicroUsd, nowMs);
      await recordCalls(tx, await lostCallsOf(tx, hold), nowMs);
    }
    return dead.length;
  });
}

/** An image whose task is known is asked for again, and counts then. */
async function lostCallsOf(tx: Transaction, { id, lostCalls }: RealtimeHoldRecord): Promise<Call[]> {
  if (!lostCalls) return [];
  const tasks = (await tx.keyedRequests.ofRun(id))?.tasks ?? {};
  const lost = { images: 0, isError: true, billedMicroUsd: 0, usage: null };
  return Object.entries(lostCalls).flatMap(([index, call]) =>
    Object.hasOwn(tasks, index) ? [] : [{ ...call, ...lost }],
  );
}

async function release(
  tx: Transaction,
  hold: RealtimeHoldRecord,
  amountMicroUsd: number,
  nowMs: number,
): Promise<void> {
  await moveMoney(tx, { ...movementOf(hold, "release"), amountMicroUsd }, nowMs);
  await takeBack(tx, hold, amountMicroUsd, nowMs);
}

function movementOf({ id, accountId, amountMicroUsd }: RealtimeHoldRecord, kind: LedgerEntry["kind"]) {
  return { requestId: `${kind}:${id}`, accountId, batchId: null, kind, amountMicroUsd };
}

/**
 * Holds the price of an image that a recording asks an upstream for, where there are budgets over time: its own request costs
 * its caller nothing. The real account of this machine has it, or that of the first key where no key belongs to this machine.
 * Returns null without a budget. Throws the errors of `openHold`: `REALTIME_INSUFFICIENT_BALANCE` above a budget.
 */
export async function holdForRecording(
  deps: { stores: Stores; clock: Clock; ids: Ids; worker: string },
  { model, options: { size, ratio } }: Pick<ImageRequest, "model" | "options">,
  provider: string,
  amountMicroUsd: number,
): Promise<{ captured(image: Buffer): Promise<void>; released(): Promise<void> } | null> {
  const { stores, clock, ids, worker } = deps;
  if ((await stores.read.budgets.list()).length === 0) return null;
  const own = await stores.read.accounts.byName(DEFAULT_ACCOUNT);
  const keys = await stores.read.keys.list();
  const key = keys.find(({ accountId }) => accountId === own?.id) ?? keys[0];
  if (key === undefined) throw new Error("budgets count by API keys, and there is none");
  const { id: accountId } = await stores.write((tx) => openRealAccount(tx, deps, key.accountId));
  const owner = { apiKeyId: key.id, accountId };
  const lostCalls = { 0: { provider, model, isMaybePaidTwice: false, heldMicroUsd: amountMicroUsd } };
  const hold = {
    id: ids.recordId("rec"),
    ...owner,
    amountMicroUsd,
    createdAtMs: clock.nowMs(),
    worker,
    lostCalls,
  };
  await openHold(stores, hold, { consentMicroUsd: amountMicroUsd, isUpstream: true });
  return {
    captured: (image) => {
      const { mimeType = "image/png", widthPx = null, heightPx = null } = readImageHeader(image) ?? {};
      const made = { realtimeId: hold.id, imageIndex: 0, ...owner, model, executedModel: model, provider };
      const facts = { size: tierOf(size), ratio, mimeType, widthPx: widthPx ?? 0, heightPx: heightPx ?? 0 };
      const createdAtMs = clock.nowMs();
      const record = { ...made, ...facts, sizeBytes: image.length, amountMicroUsd, createdAtMs };
      return endHold(stores, hold, [record], [], createdAtMs);
    },
    released: () => endHold(stores, hold, [], [], clock.nowMs()),
  };
}
