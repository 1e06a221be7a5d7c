import type { Batch } from "../../client/batch.ts";
import { FREE_DRAWINGS, formatUsd, numberToMicros } from "../../kernel/money.ts";

/** Describes what a cancelled batch costs and what was released. Leaves out amounts that the service does not report. */
export function describeCancel(batch: Batch): string {
  const { id, successCount, itemCount, failCount } = batch;
  if (batch.status !== "cancelled") return `${id} had already ended (${batch.status}); nothing was cancelled`;
  const total = itemCount ?? successCount + failCount;
  const released = releasedMicroUsd(batch);
  const billed = batch.actualCostMicroUsd;
  const stay = `${successCount} of ${total} images were finished and stay`;
  const parts = batch.isPlay
    ? [`${id} cancelled`, stay, FREE_DRAWINGS]
    : [
        `${id} cancelled`,
        `${stay}${billed === null ? "" : `, billed ${formatUsd(billed, "sum")}`}`,
        ...(released === null ? [] : [`${formatUsd(released, "sum")} released`]),
      ];
  return parts.join("; ");
}

/** The released part of the hold, in micro-dollars; null if the service does not report the hold or the cost. */
export function releasedMicroUsd({ raw, actualCostMicroUsd }: Batch): number | null {
  const held = raw.hold_amount;
  if (typeof held !== "number" || actualCostMicroUsd === null) return null;
  const heldMicroUsd = numberToMicros(held);
  return Number.isSafeInteger(heldMicroUsd) ? Math.max(0, heldMicroUsd - actualCostMicroUsd) : null;
}
