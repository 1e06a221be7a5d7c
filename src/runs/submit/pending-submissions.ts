import type { Batch } from "../../client/batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { RunBatch } from "../directory/run-state-schema.ts";

/** The current facts of the batches that a command makes or continues. */
export interface Submissions {
  /**
   * Ends the wait for the answer of a create request. It may come later than the command's own signal, which then only
   * prevents further requests.
   */
  readonly answerSignal: AbortSignal;
  /** The batches whose ids are known, as they were last seen. */
  readonly known: Map<string, Batch>;
  /** The batches whose request may have left, in this command or an earlier one, without a known answer. */
  readonly open: Set<RunBatch>;
  /** The number of batches of the run. */
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

/** Returns the beginning of a sentence that names the batches that may exist without a known id. Null for none. */
export function describeOpen({ open, total }: Submissions): string | null {
  const numbers = [...open].map(({ index }) => index + 1).sort((a, b) => a - b);
  if (numbers.length === 0) return null;
  if (total === 1) return "the batch may exist: its request was sent, and no response came";
  const [which, whose] =
    numbers.length === 1 ? ["batch", "its request was"] : ["batches", "their requests were"];
  return `${which} ${numbers.join(", ")} of ${total} may exist: ${whose} sent, and no response came`;
}
