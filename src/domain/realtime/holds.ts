import { ImgbatchError } from "../../contract/errors.ts";
import { formatUsd } from "../../kernel/money.ts";
import { moveMoney } from "../billing/ledger.ts";
import { type Call, recordCall } from "../health/record-call.ts";
import type { Stores } from "../ports/stores.ts";
import type { LedgerKind, RealtimeHoldRecord, UsageRecord } from "../records.ts";

/**
 * Takes the price of a request out of the balance before anything is made. Throws `REALTIME_INSUFFICIENT_BALANCE`.
 */
export function openHold(stores: Stores, hold: RealtimeHoldRecord): Promise<void> {
  return stores.write(async (tx) => {
    await tx.realtimeHolds.insert(hold);
    await moveMoney(tx, movementOf(hold, "hold"), hold.createdAtMs, (balance) => {
      const message = `The image costs ${formatUsd(hold.amountMicroUsd)}, the balance is ${formatUsd(balance)}.`;
      return new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);
    });
  });
}

/**
 * Ends a hold, once: with usage records it is captured, without any it goes back to the balance. The records, the calls
 * to providers and the money are one transaction.
 */
export function endHold(
  stores: Stores,
  id: string,
  usage: readonly UsageRecord[],
  calls: readonly Call[],
  nowMs: number,
): Promise<void> {
  return stores.write(async (tx) => {
    const hold = await tx.realtimeHolds.remove(id);
    if (!hold) return;
    await moveMoney(tx, movementOf(hold, usage.length > 0 ? "capture" : "release"), nowMs);
    await tx.usage.insertMany(usage);
    for (const call of calls) await recordCall(tx, call, nowMs);
  });
}

/**
 * Releases the holds that an earlier process left open when it died. Only the owner of the data calls this, before it
 * takes requests. Returns how many holds there were.
 */
export function releaseDeadHolds(stores: Stores, nowMs: number): Promise<number> {
  return stores.write(async (tx) => {
    const dead = await tx.realtimeHolds.list();
    for (const { id } of dead) {
      const hold = await tx.realtimeHolds.remove(id);
      if (hold) await moveMoney(tx, movementOf(hold, "release"), nowMs);
    }
    return dead.length;
  });
}

function movementOf({ id, accountId, amountMicroUsd }: RealtimeHoldRecord, kind: LedgerKind) {
  return { requestId: `${kind}:${id}`, accountId, batchId: null, kind, amountMicroUsd };
}
