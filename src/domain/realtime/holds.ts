import { ImgbatchError } from "../../contract/errors.ts";
import { formatUsd } from "../../kernel/money.ts";
import { grant, moveMoney, takeBack } from "../billing/ledger.ts";
import { cannotPay, type Payer } from "../billing/payer.ts";
import { type Call, recordCall } from "../health/record-call.ts";
import type { RealtimeHoldRecord, UsageRecord } from "../ports/realtime-records.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { LedgerKind } from "../records.ts";

/** Writes what belongs to a movement of money, in its transaction. */
type Alongside = (tx: Transaction) => Promise<void>;

const NOTHING: Alongside = async () => {};

const DRAWN = { consentMicroUsd: null, isUpstream: false };

/**
 * Takes the price of a request out of the balance before anything is made. The money may be granted for it, at most as
 * much as the consent allows. `what` is the subject of the error's sentence: by default, one image. Throws
 * `REALTIME_INSUFFICIENT_BALANCE`.
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
    await tx.realtimeHolds.insert(hold);
    await alongside(tx);
    if (consentMicroUsd !== null) await grant(tx, hold, null, hold.amountMicroUsd, hold.createdAtMs);
    await moveMoney(tx, movementOf(hold, "hold"), hold.createdAtMs, (balance) => {
      if (isUpstream) return refuse({ balanceMicroUsd: balance });
      const message = `${what} costs ${formatUsd(hold.amountMicroUsd)}, the balance is ${formatUsd(balance)}.`;
      return new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);
    });
  });
}

/**
 * Ends a hold, once: the amounts of the usage records are captured, the rest goes back to the balance. The records, the
 * calls to providers and the money are one transaction.
 */
export function endHold(
  stores: Stores,
  id: string,
  usage: readonly UsageRecord[],
  calls: readonly Call[],
  nowMs: number,
  alongside = NOTHING,
): Promise<void> {
  return stores.write(async (tx) => {
    const hold = await tx.realtimeHolds.remove(id);
    if (!hold) return;
    await alongside(tx);
    const amountMicroUsd = usage.reduce((sum, record) => sum + record.amountMicroUsd, 0);
    const rest = hold.amountMicroUsd - amountMicroUsd;
    if (usage.length > 0) await moveMoney(tx, { ...movementOf(hold, "capture"), amountMicroUsd }, nowMs);
    if (usage.length === 0 || rest > 0) await release(tx, hold, rest, nowMs);
    await tx.usage.insertMany(usage);
    for (const call of calls) await recordCall(tx, call, nowMs);
  });
}

/** Releases the holds that processes left open when they died. Returns how many holds there were. */
export async function releaseDeadHolds(stores: Stores, nowMs: number): Promise<number> {
  const dead = await stores.read.realtimeHolds.abandoned();
  if (dead.length === 0) return 0;
  return stores.write(async (tx) => {
    for (const { id } of dead) {
      const hold = await tx.realtimeHolds.remove(id);
      if (hold) await release(tx, hold, hold.amountMicroUsd, nowMs);
    }
    return dead.length;
  });
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

function movementOf({ id, accountId, amountMicroUsd }: RealtimeHoldRecord, kind: LedgerKind) {
  return { requestId: `${kind}:${id}`, accountId, batchId: null, kind, amountMicroUsd };
}
