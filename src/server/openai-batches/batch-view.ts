import { isErrorCode } from "../../contract/errors.ts";
import { type OpenaiBatch, type OpenaiBatchState, openaiCode } from "../../contract/openai-api.ts";
import type { BatchStatus } from "../../contract/statuses.ts";
import { hasItems } from "../../domain/batches/lifecycle.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { openaiBatchId } from "./ids.ts";
import { resultIdOf } from "./result-file.ts";

const STATES: Record<BatchStatus, OpenaiBatchState> = {
  queued: "in_progress",
  running: "in_progress",
  processing_results: "finalizing",
  settling: "finalizing",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
  output_deleted: "completed",
};

/** A batch as OpenAI's API shows it. `status` is the batch's, or the one that it ended in when its outputs were deleted since. */
export function batchView(batch: BatchRecord, status: BatchStatus): OpenaiBatch {
  const state = stateOf(batch, status);
  const { createdAtMs, inputReadAtMs, endedAtMs, input, itemCount, successCount, failCount } = batch;
  const endedAs = (wanted: OpenaiBatchState) => (state === wanted ? secondsOf(endedAtMs) : null);
  return {
    id: openaiBatchId(batch.id),
    object: "batch",
    endpoint: input?.openai?.endpoint ?? "",
    model: batch.model,
    errors: state === "failed" ? errorsOf(batch) : null,
    input_file_id: input?.fileName ?? "",
    completion_window: "24h",
    status: state,
    output_file_id: resultIdOf(batch, "output"),
    error_file_id: resultIdOf(batch, "errors"),
    created_at: Math.floor(createdAtMs / 1000),
    in_progress_at: secondsOf(inputReadAtMs),
    expires_at: null,
    finalizing_at: endedAs("completed"),
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: endedAs("cancelled"),
    cancelled_at: endedAs("cancelled"),
    request_counts: { total: itemCount, completed: successCount, failed: failCount },
    metadata: batch.metadata,
  };
}

function stateOf(batch: BatchRecord, status: BatchStatus): OpenaiBatchState {
  if (status === "queued" && !hasItems(batch)) return "validating";
  if (status === "failed" && batch.input?.simulatedEnd === "expired") return "expired";
  return STATES[status];
}

function errorsOf({ error }: BatchRecord): OpenaiBatch["errors"] {
  const given = error?.code ?? "";
  const code = isErrorCode(given) ? openaiCode(given) : given;
  const message = error?.message ?? "The batch failed.";
  return { object: "list", data: [{ code, message, param: null, line: null }] };
}

const secondsOf = (ms: number | null) => (ms === null ? null : Math.floor(ms / 1000));
