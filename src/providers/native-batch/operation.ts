import type { JobState, UpstreamJob } from "../../domain/ports/image-provider.ts";
import { textAt, valueAt } from "../upstream/read-json.ts";
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

/** The end of a job, in words for people. */
const ENDED: Readonly<Record<JobState, string>> = {
  running: "",
  succeeded: "",
  failed: "the upstream's job has failed",
  cancelled: "the upstream's job was cancelled there",
  expired: "the upstream's job has expired",
};

/** Reads an operation of the vendor's batch API. Null when it shows no job. `provider` is named in what it says. */
export function readOperation(provider: string, operation: unknown): UpstreamJob | null {
  const name = textAt(operation, "name") ?? textAt(operation, "metadata", "name");
  if (name === null || !NAME.test(name)) return null;
  const metadata = valueAt(operation, "metadata");
  const at = (camel: string, snake: string) => textAt(metadata, camel) ?? textAt(metadata, snake);
  const config = valueAt(metadata, "inputConfig") ?? valueAt(metadata, "input_config");
  const word = (at("state", "state") ?? "").replace(/^(?:BATCH|JOB)_STATE_/, "");
  const reason = upstreamWords(textAt(operation, "error", "message") ?? "");
  const state = ENDS[word] ?? (valueAt(operation, "done") === true ? doneState(operation) : "running");
  const createdAtMs = Date.parse(at("createTime", "create_time") ?? "");
  const jobId = at("displayName", "display_name");
  return {
    name,
    jobId: jobId === null ? null : oneLine(jobId.slice(0, 512)),
    input: textAt(config, "fileName") ?? textAt(config, "file_name"),
    createdAtMs: Number.isNaN(createdAtMs) ? null : createdAtMs,
    state,
    said: ENDED[state]
      ? `${provider}: ${ENDED[state]}${reason && `: ${reason}`}`
      : oneLine(word.slice(0, 100)),
  };
}

function doneState(operation: unknown): JobState {
  return valueAt(operation, "error") === undefined ? "succeeded" : "failed";
}

/** Returns the name of the file with the results; null when there is none. */
export function outputFileOf(operation: unknown): string | null {
  const outputs = [valueAt(operation, "metadata", "output"), valueAt(operation, "response")];
  const names = outputs.flatMap((output) => [
    textAt(output, "responsesFile"),
    textAt(output, "responses_file"),
  ]);
  return names.find((name) => name !== null && NAME.test(name)) ?? null;
}
