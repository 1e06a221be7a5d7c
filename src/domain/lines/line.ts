import { jobDirectivesOf, stuckMs } from "../../contract/job-directives.ts";
import type { BatchSource } from "../../contract/statuses.ts";
import type { ModelEntry } from "../models.ts";
import { DRAWINGS } from "../offers.ts";
import type { NewItem } from "../ports/item-repository.ts";
import type { CheckedContent } from "../realtime/checked-content.ts";
import type { BatchError, BatchInput, BatchRecord } from "../records.ts";

/** The end that the directives in the prompts of a job ask for. */
interface Simulated {
  end: NonNullable<BatchInput["simulatedEnd"]> | null;
  /** The position of the first line that has no result. */
  partialFrom: number | null;
  stuckMs: number;
}

/** Returns what the prompts of a job ask for. Only drawings obey directives. */
export function simulatedIn({ upstream }: BatchRecord, items: readonly NewItem[]): Simulated {
  const simulated: Simulated = { end: null, partialFrom: null, stuckMs: 0 };
  if (upstream !== DRAWINGS) return simulated;
  for (const { prompt, position } of items) {
    const asked = jobDirectivesOf(prompt);
    if (asked.has("job-fail")) simulated.end = "failed";
    if (asked.has("job-expire")) simulated.end = "expired";
    if (asked.has("job-partial")) simulated.partialFrom ??= position;
    simulated.stuckMs = Math.max(simulated.stuckMs, stuckMs(asked.get("job-stuck") ?? "") ?? 0);
  }
  return simulated;
}

/** The error of a job that ends as its directives ask. */
export const SIMULATED_END: BatchError = {
  code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED",
  message: "The job ended without all results, as a directive in its prompts asks.",
  source: "provider",
};

/** A line of a batch job: a request that has passed every check, or what is wrong with it. */
export type Line = {
  /** The client's name of the line, as JSON; null when it has none. */
  key: string | null;
} & ({ content: CheckedContent } | { problem: string });

/** The job of some lines: they can name the files of its key. */
export type JobOfLines = Pick<BatchRecord, "apiKeyId" | "input">;

/**
 * Reads the lines of a job from its input, one at a time. The content of a line can be used until the next one is
 * asked for. Rejects with `StorageUnavailable` when the disk refuses its images.
 */
export type LineReader = (
  model: ModelEntry,
  input: AsyncIterable<Buffer>,
  job: JobOfLines,
) => AsyncIterable<Line>;

/** The readers of the surfaces that take batch jobs. */
export type LineReaders = Partial<Record<BatchSource, LineReader>>;
