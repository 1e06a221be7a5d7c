import { ImgbatchError } from "../../contract/errors.ts";
import { formatUsd } from "../../kernel/money.ts";
import { moveMoney } from "../billing/ledger.ts";
import type { Repositories, Stores } from "../ports/stores.ts";
import type { LedgerKind, RealtimeHoldRecord, UsageRecord } from "../records.ts";

/**
 * Takes the price of a request out of the balance before anything is made. Throws `REALTIME_INSUFFICIENT_BALANCE`.
 */
export function openHold(stores: Stores, hold: RealtimeHoldRecord): Promise<void> {
  return stores.write(async (tx) => {
    const balance = (await tx.accounts.byId(hold.accountId))?.balanceMicroUsd ?? 0;
    if (balance < hold.amountMicroUsd) {
      const message = `The image costs ${formatUsd(hold.amountMicroUsd)}, the balance is ${formatUsd(balance)}.`;
      throw new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message);
    }
    await tx.realtimeHolds.insert(hold);
    await move(tx, hold, "hold", hold.createdAtMs);
  });
}

/**
 * Ends a hold, once: with usage records it is captured, without any it goes back to the balance. The records and the
 * money are one transaction.
 */
export function endHold(
  stores: Stores,
  id: string,
  usage: readonly UsageRecord[],
  nowMs: number,
): Promise<void> {
  return stores.write(async (tx) => {
    const hold = await tx.realtimeHolds.remove(id);
    if (!hold) return;
    await move(tx, hold, usage.length > 0 ? "capture" : "release", nowMs);
    await tx.usage.insertMany(usage);
  });
}

/**
 * Gives back what an earlier process held when it died. Only for the one that owns the data, before it takes requests.
 * Answers how many there were.
 */
export function releaseDeadHolds(stores: Stores, nowMs: number): Promise<number> {
  return stores.write(async (tx) => {
    const dead = await tx.realtimeHolds.list();
    for (const { id } of dead) {
      const hold = await tx.realtimeHolds.remove(id);
      if (hold) await move(tx, hold, "release", nowMs);
    }
    return dead.length;
  });
}

async function move(
  tx: Repositories,
  hold: RealtimeHoldRecord,
  kind: LedgerKind,
  nowMs: number,
): Promise<void> {
  const { accountId, amountMicroUsd } = hold;
  const requestId = `${kind}:${hold.id}`;
  await moveMoney(tx, { requestId, accountId, batchId: null, kind, amountMicroUsd }, nowMs);
}
