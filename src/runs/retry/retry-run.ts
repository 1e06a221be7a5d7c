import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { takePendingInput } from "../directory/pending-input.ts";
import { intendedBatch, isUpdate, lastRound, writeRunState } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import type { StartedRun } from "../submit/start-run.ts";
import type { RetryPart } from "./plan-retry.ts";
import { type RetryOptions, sendBatches } from "./send-batches.ts";

/** Whether a retry or an update was begun and is not finished. Single images that could not be fetched do not keep it open. */
export function isRetryOpen(runState: RunState): boolean {
  if (lastRound(runState) === 0) return false;
  return runState.finished_at === null || unsentOf(runState).length > 0;
}

/** The batches of a retry that have no id yet. */
function unsentOf(runState: RunState): RunState["batches"] {
  return runState.batches.filter(({ round, state }) => round > 0 && state !== "created");
}

/** The number of images that an open retry has still to send. */
export function unsentImages(runState: RunState): number {
  return unsentOf(runState).reduce((sum, entry) => sum + (entry.retried?.length ?? 0), 0);
}

/**
 * Begins a retry: its batches, with their keys, are in the run state on disk before the first request leaves.
 */
export async function startRetry(options: RetryOptions, parts: readonly RetryPart[]): Promise<StartedRun> {
  const { dir, state: runState } = options;
  const round = lastRound(runState) + 1;
  for (const { chunk, request, ids } of parts) {
    const { contentKey: idempotencyKey, imageCount } = chunk;
    const { parentId } = request;
    const entry = intendedBatch(runState.batches.length, { idempotencyKey, parentId, imageCount });
    runState.batches.push({ ...entry, round, retried: ids });
  }
  runState.finished_at = null;
  await writeRunState(dir, runState);
  return sendOrDrop(options);
}

/** Sends the batches that an open retry or update has not sent yet, and returns every batch of the run. */
export async function resumeRetry(options: RetryOptions): Promise<StartedRun> {
  await takePendingInput(options.dir, options.state);
  for (const entry of unsentOf(options.state)) options.submissions?.open.add(entry);
  return sendOrDrop(options);
}

async function sendOrDrop(options: RetryOptions): Promise<StartedRun> {
  try {
    return await sendBatches(options);
  } catch (error) {
    if (isFinal(error)) await dropUnsent(options);
    throw error;
  }
}

const FINAL: readonly ExitName[] = ["usage", "auth", "money", "conflict", "gone"];

/** Whether the service has refused the request, so that nothing was made. */
function isFinal(error: unknown): boolean {
  return error instanceof ImgbatchError && FINAL.includes(errorEntry(error.code).exit);
}

/**
 * Removes unsent batches of retries from the run state: a refused batch is not sent again as it is. The next retry makes a
 * new plan.
 */
async function dropUnsent({ dir, state: runState, clock }: RetryOptions): Promise<void> {
  const round = lastRound(runState);
  const unsent = unsentOf(runState).filter((entry) => !isUpdate(runState, entry.round));
  runState.batches = runState.batches.filter((entry) => !unsent.includes(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(runState) < round) runState.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
}
