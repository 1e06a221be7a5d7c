import { ImgbatchError } from "../../contract/errors.ts";
import { jobDirectivesOf, stuckMs } from "../../contract/job-directives.ts";
import type { BatchStatus, ItemError } from "../../contract/statuses.ts";
import type { Line } from "../../domain/jobs/take-in.ts";
import { DRAWINGS } from "../../domain/models.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { BatchError, BatchRecord, ItemRecord } from "../../domain/records.ts";
import type { Clock } from "../../kernel/clock.ts";

const FAILED = "The job ended without all results, as a directive in its prompts asks.";
const EXPIRED = "The job expired, as a directive in its prompts asks.";

/** The error of a line behind `job-partial`. A file that is lost has the same code, and another source. */
const LEFT_OUT: ItemError = { code: "RESULT_MISSING", message: FAILED, source: "provider" };

/**
 * Returns a function that applies the directives in the prompts of a job to its lines, which it gets in their order. Only
 * drawings obey directives. Throws `BATCH_IMAGE_PROVIDER_SUBMIT_FAILED` for a job that ends without results.
 */
export function simulation({ upstream }: Pick<BatchRecord, "upstream">, clock: Clock): (line: Line) => Line {
  let isPartial = false;
  return (line) => {
    if (upstream !== DRAWINGS || !("content" in line)) return line;
    const asked = jobDirectivesOf(line.content.prompt);
    if (asked.has("job-fail")) throw new ImgbatchError("BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", FAILED);
    if (asked.has("job-expire")) throw new ImgbatchError("BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", EXPIRED);
    isPartial ||= asked.has("job-partial");
    const waitMs = stuckMs(asked.get("job-stuck") ?? "");
    const wait = waitMs === null ? {} : { notBeforeMs: clock.nowMs() + waitMs };
    return isPartial ? { key: line.key, ...wait, error: LEFT_OUT } : { ...line, ...wait };
  };
}

/** Whether the results of a job do not have this item, because the job ended before it. */
export function isLeftOut({ error }: Pick<ItemRecord, "error">): boolean {
  return error?.code === LEFT_OUT.code && error.source === LEFT_OUT.source;
}

/**
 * Returns how a directive has ended a job; null for a job that has ended by itself, or not at all. `status`: that of the
 * batch before its outputs were deleted.
 */
export async function simulatedEnd(
  read: Repositories,
  { id, upstream, error, itemCount, failCount }: BatchRecord,
  status: BatchStatus,
): Promise<{ status: "failed" | "expired"; error: BatchError } | null> {
  if (upstream !== DRAWINGS) return null;
  if (error?.message === EXPIRED) return { status: "expired", error };
  // The other lines may have been made: their batch is completed.
  if (status !== "completed" || failCount === 0) return null;
  const [last] = await read.items.page(id, { afterPosition: itemCount - 2, limit: 1 });
  if (!last || !isLeftOut(last)) return null;
  const { message, source } = LEFT_OUT;
  return { status: "failed", error: { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message, source } };
}
