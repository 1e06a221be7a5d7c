import type { Batch } from "../../client/answers.ts";
import { jobsText, waitingText } from "../../contract/waiting.ts";
import { costText, FREE_DRAWINGS, formatUsd, numberToMicros } from "../../kernel/money.ts";
import { escapeControls } from "../../kernel/text.ts";

/**
 * Describes a batch in one line: id, status, counts, cost, name, its API when that is not the batch API, the
 * reason why it waits, and error, separated by two spaces.
 */
export function batchLine(batch: Batch): string {
  const fields = [
    batch.id,
    batch.status,
    `${batch.hasCounts ? batch.successCount : "?"}/${batch.itemCount ?? "?"} images`,
    `${batch.hasCounts ? batch.failCount : "?"} failed`,
    batchCost(batch),
    batch.name ?? "",
    batch.source === null || batch.source === "batch" ? "" : `(${batch.source} job)`,
    batch.waiting === null ? (jobsText(batch.jobs, Date.now()) ?? "") : waitingText(batch.waiting),
    batch.error === null ? "" : `${batch.error.code}: ${batch.error.message}`,
  ];
  return fields.filter((field) => field !== "").join("  ");
}

/** What a batch has cost, or will cost about; empty when the service does not say. */
export function batchCost({ actualCostMicroUsd, estimatedCostMicroUsd, isPlay }: Batch): string {
  if (actualCostMicroUsd !== null) return costText({ micros: actualCostMicroUsd, isPlay });
  if (estimatedCostMicroUsd === null) return "";
  return `${isPlay ? "" : "about "}${costText({ micros: estimatedCostMicroUsd, isPlay }, "limit")}`;
}

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

/** A record of a list for programs: fields between tabs, on one line, always the same number of fields. */
export function recordLine(fields: readonly (string | number)[]): string {
  return fields.map((field) => escapeControls(String(field))).join("\t");
}
