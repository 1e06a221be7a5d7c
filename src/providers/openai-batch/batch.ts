import type { JobState, UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { ResultFile } from "../upstream/jobs/job-provider.ts";
import { jobWords } from "../upstream/jobs/job-words.ts";
import { countAt, listAt, textAt } from "../upstream/read-json.ts";
import { oneLine, upstreamWords } from "../upstream/words.ts";

const ID = /^[\w.:-]{1,200}$/;

/** The key of a job's metadata that has our id. */
export const JOB_ID = "imgbatch_job";

/** Final states. Every other one, also an unknown one, is `running`. */
const ENDS: Readonly<Record<string, Exclude<JobState, "running">>> = {
  completed: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  expired: "expired",
};

/** Reads a job of OpenAI's Batch API. Null when the value shows none. `provider` is named in what it says. */
export function readBatch(provider: string, batch: unknown): UpstreamJob | null {
  const name = textAt(batch, "id");
  if (name === null || !ID.test(name)) return null;
  const word = textAt(batch, "status") ?? "";
  const reason = listAt(batch, "errors", "data")
    .map((error) => upstreamWords(textAt(error, "message") ?? ""))
    .find((message) => message !== "");
  const state = ENDS[word] ?? "running";
  const createdAt = countAt(batch, "created_at");
  const jobId = textAt(batch, "metadata", JOB_ID);
  return {
    name,
    jobId: jobId === null ? null : oneLine(jobId.slice(0, 512)),
    input: textAt(batch, "input_file_id"),
    // A second that has only begun counts as its end.
    createdAtMs: createdAt === null ? null : (createdAt + 1) * 1000 - 1,
    state,
    said: jobWords(provider, state, word, reason ?? ""),
  };
}

/** Returns the files with results: successes, then errors. Either may be missing. */
export function outputFilesOf(batch: unknown): ResultFile[] {
  return (["completed", "failed"] as const).flatMap((count) => {
    const id = textAt(batch, count === "completed" ? "output_file_id" : "error_file_id");
    const name = id !== null && ID.test(id) ? id : null;
    const results = countAt(batch, "request_counts", count);
    // Requests that were never run may count as failed.
    return name !== null || (results && count === "completed") ? [{ name, results }] : [];
  });
}
