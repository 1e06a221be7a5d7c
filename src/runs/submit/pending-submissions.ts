import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { RunBatch } from "../directory/run-state.ts";

/** What is known, at any moment, of the batches that a command makes or goes on with. */
export interface Submissions {
  /**
   * Ends the wait for the answer of a request that makes a batch. Where it comes later than the command's own signal,
   * that one only keeps further requests from leaving.
   */
  readonly answerSignal: AbortSignal;
  /** The batches that are known by id, as they were last seen. */
  readonly known: Map<string, Batch>;
  /** Those whose request may have left, in this command or an earlier one, and whose answer is not known. */
  readonly open: Set<RunBatch>;
  /** How many batches the run has. */
  total: number;
}

export function newSubmissions(answerSignal: AbortSignal): Submissions {
  return { answerSignal, known: new Map(), open: new Set(), total: 0 };
}

/** Whether an error leaves open what became of a request that makes a batch. */
export function leavesOpen(error: unknown, signal: AbortSignal | undefined): boolean {
  const isLost = error instanceof ImgbatchError && error.code === "SUBMISSION_UNKNOWN";
  return isLost || (signal?.aborted === true && error === signal.reason);
}

/** Which batches may have been made without being known, as the beginning of a sentence; null when there are none. */
export function describeOpen({ open, total }: Submissions): string | null {
  const numbers = [...open].map(({ index }) => index + 1).sort((a, b) => a - b);
  if (numbers.length === 0) return null;
  if (total === 1) return "the batch may have been made: its request had left, and no answer came";
  const [which, whose] = numbers.length === 1 ? ["batch", "its request"] : ["batches", "their requests"];
  return `${which} ${numbers.join(", ")} of ${total} may have been made: ${whose} had left, and no answer came`;
}
