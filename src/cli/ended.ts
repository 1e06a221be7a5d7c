import type { Batch } from "../client/read-batch.ts";
import { type ErrorCode, ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import { type Allowance, type Counts, verdict } from "../run/verdict.ts";

/** The exit code of ended batches, and the error that the JSON document carries when it is not 0. */
export function judge(
  counts: Counts,
  batches: readonly Batch[],
  allowance?: Allowance,
): { exitCode: number; error: { code: ErrorCode; message: string } | null } {
  const name = verdict(
    counts,
    batches.map((batch) => batch.status),
    allowance,
  );
  const exitCode = EXIT_CODES[name].code;
  if (name === "ok") return { exitCode, error: null };
  const code = name === "noImages" ? "NO_IMAGES" : "ITEMS_FAILED";
  const message = [`${counts.failed} of ${counts.total} images failed`, ...batchProblems(batches)].join("; ");
  return { exitCode, error: { code, message } };
}

/** What went wrong with batches as a whole. */
export function batchProblems(batches: readonly Batch[]): string[] {
  return batches.flatMap(({ id, status, error }) => {
    if (status !== "failed" && status !== "cancelled") return [];
    const reason = error === null ? "" : ` (${error.code}: ${error.message})`;
    return [`${id} ${status === "failed" ? "failed" : "was cancelled"}${reason}, --new generates again`];
  });
}

/** What the batches themselves count. */
export function countOf(batches: readonly Batch[]): Counts {
  const sum = (value: (batch: Batch) => number) => batches.reduce((total, batch) => total + value(batch), 0);
  const success = sum((batch) => batch.successCount);
  const total = sum((batch) => batch.itemCount ?? batch.successCount + batch.failCount);
  return { total, success, failed: total - success };
}

/** Throws `BATCH_IMAGE_OUTPUT_DELETED` when images of a batch are gone. */
export function requireOutputs(batches: readonly Batch[]): void {
  const gone = batches.find((batch) => batch.status === "output_deleted");
  if (gone !== undefined)
    throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${gone.id} were deleted.`);
}
