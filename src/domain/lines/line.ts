import type { BatchSource } from "../../contract/statuses.ts";
import type { ModelEntry } from "../models.ts";
import type { CheckedContent } from "../realtime/checked-content.ts";
import type { BatchRecord } from "../records.ts";

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
