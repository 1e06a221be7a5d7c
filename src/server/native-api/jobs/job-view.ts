import { errorEntry, isErrorCode, nativeStatus, RPC_CODES } from "../../../contract/errors.ts";
import type { Job, JobOutput, JobState } from "../../../contract/native-jobs.ts";
import { type BatchStatus, isTerminal } from "../../../contract/statuses.ts";
import type { BatchRecord } from "../../../domain/records.ts";
import { jobId } from "./job-id.ts";

const TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch";
const OUTPUT_TYPE = `${TYPE}Output`;

const STATES: Record<BatchStatus, JobState> = {
  queued: "BATCH_STATE_PENDING",
  running: "BATCH_STATE_RUNNING",
  processing_results: "BATCH_STATE_RUNNING",
  settling: "BATCH_STATE_RUNNING",
  completed: "BATCH_STATE_SUCCEEDED",
  failed: "BATCH_STATE_FAILED",
  cancelled: "BATCH_STATE_CANCELLED",
  output_deleted: "BATCH_STATE_SUCCEEDED",
};

/**
 * A batch job as its API shows it. `status` is the batch's, or the one that it ended in when its outputs were deleted since.
 * `output` is null when it has none, or none yet.
 */
export function jobView(batch: BatchRecord, status: BatchStatus, output: JobOutput | null): Job {
  const name = `batches/${jobId(batch.id)}`;
  const isDone = isTerminal(status);
  const { createdAtMs, inputReadAtMs, endedAtMs, input } = batch;
  return {
    name,
    metadata: {
      "@type": TYPE,
      model: `models/${batch.model}`,
      displayName: batch.taskName,
      ...(input?.fileName == null ? {} : { inputConfig: { fileName: input.fileName } }),
      ...(output === null ? {} : { output }),
      createTime: timeOf(createdAtMs),
      ...(endedAtMs === null ? {} : { endTime: timeOf(endedAtMs) }),
      updateTime: timeOf(endedAtMs ?? inputReadAtMs ?? createdAtMs),
      batchStats: statsOf(batch),
      state: isExpired(batch, status) ? "BATCH_STATE_EXPIRED" : STATES[status],
      name,
    },
    ...(isDone ? { done: true, ...outcomeOf(batch, status, output) } : {}),
  };
}

const isExpired = ({ input }: BatchRecord, status: BatchStatus) =>
  status === "failed" && input?.simulatedEnd === "expired";

function outcomeOf(batch: BatchRecord, status: BatchStatus, output: JobOutput | null) {
  if (status === "completed") return { response: { "@type": OUTPUT_TYPE, ...output } };
  if (status === "cancelled")
    return { error: { code: RPC_CODES.CANCELLED, message: "The job was cancelled." } };
  if (isExpired(batch, status)) {
    return { error: { code: RPC_CODES.DEADLINE_EXCEEDED, message: "The job expired." } };
  }
  const { error } = batch;
  const code = error?.code ?? "";
  const httpStatus = isErrorCode(code) ? errorEntry(code).httpStatus : 500;
  const message = error?.message ?? "The job failed.";
  return { error: { code: RPC_CODES[nativeStatus(httpStatus)], message } };
}

/** Counters are text, and left out when they are 0. */
function statsOf({ itemCount, successCount, failCount }: BatchRecord): Job["metadata"]["batchStats"] {
  const counters = {
    requestCount: itemCount,
    pendingRequestCount: itemCount - successCount - failCount,
    successfulRequestCount: successCount,
    failedRequestCount: failCount,
  };
  return Object.fromEntries(
    Object.entries(counters).flatMap(([name, count]) => (count === 0 ? [] : [[name, String(count)]])),
  );
}

const timeOf = (ms: number) => new Date(ms).toISOString();
