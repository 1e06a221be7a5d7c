import type { Batch } from "../../client/batch.ts";
import { jobsText, waitingText } from "../../contract/waiting.ts";
import { costText } from "../../kernel/money.ts";

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
