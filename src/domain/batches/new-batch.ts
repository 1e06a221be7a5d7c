import { ImgbatchError } from "../../contract/errors.ts";
import type { BatchRecord } from "../records.ts";

/** The fields of a batch that has just been made. */
export const NEW_BATCH = {
  status: "queued",
  successCount: 0,
  failCount: 0,
  actualMicroUsd: null,
  endedAtMs: null,
  settledAtMs: null,
  downloadedAtMs: null,
  outputDeletedAtMs: null,
  outputsExpireAtMs: null,
  recordDeletedAtMs: null,
  outputsPurgedAtMs: null,
  error: null,
  waitingSinceMs: null,
  waiting: null,
  inputReadAtMs: null,
} as const satisfies Partial<BatchRecord>;

/**
 * Throws `BATCH_IMAGE_INVALID_ITEMS` for a batch job of a vendor's API: its requests have more than a prompt and
 * references, so the batch API cannot make them again. `param` is the field that names the batch.
 */
export function refuseToRetryJob({ source }: Pick<BatchRecord, "source">, param?: string): void {
  if (source === "batch") return;
  const why =
    "is a batch job of a vendor's API, which is not retried here; send its failed lines as a new job";
  const message = param === undefined ? `The batch ${why}.` : `${param}: the batch ${why}`;
  throw new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message, { param });
}

/** Returns the name of a batch that was given none: when it was made. */
export function generatedTaskName(nowMs: number): string {
  return new Date(nowMs).toISOString().slice(0, 19).replace("T", " ");
}
