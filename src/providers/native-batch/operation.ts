import type { JobState, UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { ResultFile } from "../upstream/jobs/job-provider.ts";
import { jobWords } from "../upstream/jobs/job-words.ts";
import { countAt, textAt, valueAt } from "../upstream/read-json.ts";
import { oneLine, upstreamWords } from "../upstream/words.ts";

const NAME = /^[\w.-]+\/[\w.:-]{1,200}$/;

/** Final states, without `BATCH_STATE_` or `JOB_STATE_`. Every other one, also an unknown one, is `running`. */
const ENDS: Readonly<Record<string, Exclude<JobState, "running">>> = {
  SUCCEEDED: "succeeded",
  PARTIALLY_SUCCEEDED: "succeeded",
  FAILED: "failed",
  CANCELLED: "cancelled",
  EXPIRED: "expired",
};

/** Reads an operation of the vendor's batch API. Null when it shows no job. `provider` is named in what it says. */
export function readOperation(provider: string, operation: unknown): UpstreamJob | null {
  const name = textAt(operation, "name") ?? textAt(operation, "metadata", "name");
  if (name === null || !NAME.test(name)) return null;
  const metadata = valueAt(operation, "metadata");
  const at = (camel: string, snake: string) => textAt(metadata, camel) ?? textAt(metadata, snake);
  const config = valueAt(metadata, "inputConfig") ?? valueAt(metadata, "input_config");
  const word = wordOf(metadata);
  const reason = upstreamWords(textAt(operation, "error", "message") ?? "");
  const state = stateOf(operation);
  const createdAtMs = Date.parse(at("createTime", "create_time") ?? "");
  const jobId = at("displayName", "display_name");
  return {
    name,
    jobId: jobId === null ? null : oneLine(jobId.slice(0, 512)),
    input: textAt(config, "fileName") ?? textAt(config, "file_name"),
    createdAtMs: Number.isNaN(createdAtMs) ? null : createdAtMs,
    state,
    said: jobWords(provider, state, word, reason),
  };
}

const wordOf = (metadata: unknown) => (textAt(metadata, "state") ?? "").replace(/^(?:BATCH|JOB)_STATE_/, "");

function stateOf(operation: unknown): JobState {
  const end = ENDS[wordOf(valueAt(operation, "metadata"))];
  if (end || valueAt(operation, "done") !== true) return end ?? "running";
  return valueAt(operation, "error") === undefined ? "succeeded" : "failed";
}

/** Returns the file with the results; none when there are none. */
export function outputFilesOf(operation: unknown): ResultFile[] {
  const outputs = [valueAt(operation, "metadata", "output"), valueAt(operation, "response")];
  const names = outputs.flatMap((output) => [
    textAt(output, "responsesFile"),
    textAt(output, "responses_file"),
  ]);
  const name = names.find((name) => name !== null && NAME.test(name)) ?? null;
  const results = resultsOf(operation);
  return name !== null || results ? [{ name, results }] : [];
}

/** How many lines the file has at least; null when nothing is said. A job that was stopped may count requests as failed that were never run. */
function resultsOf(operation: unknown): number | null {
  const metadata = valueAt(operation, "metadata");
  const stats = valueAt(metadata, "batchStats") ?? valueAt(metadata, "batch_stats");
  const made = wholeAt(stats, "successfulRequestCount") ?? wholeAt(stats, "successful_request_count");
  const failed = wholeAt(stats, "failedRequestCount") ?? wholeAt(stats, "failed_request_count");
  if (made === null && failed === null) return null;
  return (made ?? 0) + (stateOf(operation) === "succeeded" ? (failed ?? 0) : 0);
}

/** The vendor writes 64-bit numbers as text (the JSON mapping of Protocol Buffers). */
function wholeAt(stats: unknown, name: string): number | null {
  const text = textAt(stats, name);
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : countAt(stats, name);
}
