import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { takePendingInput } from "../directory/claim.ts";
import { intendedBatch, isUpdate, lastRound, makerOf, writeRunState } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import { makerAt, otherMaker, type RunService } from "../directory/service-identity.ts";
import { isUnsentElsewhere, isUnsentHere } from "../run-batches.ts";
import type { StartedRun } from "../submit/start-run.ts";
import type { RetryPart } from "./plan-retry.ts";
import { type RetryOptions, sendBatches } from "./send-batches.ts";

/**
 * Whether a retry or an update was begun with this service and is not finished. Single images that could not be fetched do
 * not keep it open.
 */
export function isRetryOpen(runState: RunState, service: RunService): boolean {
  const round = lastRound(runState);
  const last = runState.batches.filter((entry) => round > 0 && entry.round === round);
  const isOfService = last.every((entry) => otherMaker(makerOf(runState, entry), service) === null);
  if (round === 0 || !isOfService) return false;
  return runState.finished_at === null || unsentOf(runState, service).length > 0;
}

/** The batches of a retry that have no id yet, and that this service may get. */
function unsentOf(runState: RunState, service: RunService): RunBatch[] {
  return runState.batches.filter((entry) => entry.round > 0 && isUnsentHere(runState, entry, service));
}

/** The number of images that an open retry has still to send. */
export function unsentImages(runState: RunState, service: RunService): number {
  return unsentOf(runState, service).reduce((sum, entry) => sum + (entry.retried?.length ?? 0), 0);
}

/**
 * Begins a retry: its batches, with their keys, are in the run state on disk before the first request leaves.
 */
export async function startRetry(options: RetryOptions, parts: readonly RetryPart[]): Promise<StartedRun> {
  const { dir, state: runState, service } = options;
  const round = lastRound(runState) + 1;
  for (const { chunk, request, ids } of parts) {
    const { contentKey: idempotencyKey, imageCount } = chunk;
    const made = { idempotencyKey, parentId: request.parentId, imageCount };
    const entry = intendedBatch(runState.batches.length, makerAt(service), made);
    runState.batches.push({ ...entry, round, retried: ids });
  }
  runState.finished_at = null;
  await writeRunState(dir, runState);
  return sendOrDrop(options);
}

/** Sends the batches that an open retry or update has not sent yet, and returns every batch of the run. */
export async function resumeRetry(options: RetryOptions): Promise<StartedRun> {
  await takePendingInput(options.dir, options.state);
  for (const entry of unsentOf(options.state, options.service)) options.submissions?.open.add(entry);
  return sendOrDrop(options);
}

async function sendOrDrop(options: RetryOptions): Promise<StartedRun> {
  try {
    const started = await sendBatches(options);
    await leaveElsewhere(options);
    return started;
  } catch (error) {
    if (isFinal(error)) await dropUnsent(options);
    throw error;
  }
}

/** Marks the unsent batches of other services: this one has now got the requests for their images. */
export async function leaveElsewhere({ dir, state: runState, service }: RetryOptions): Promise<void> {
  const elsewhere = runState.batches.filter((entry) => isUnsentElsewhere(runState, entry, service));
  for (const entry of elsewhere) entry.state = "left";
  if (elsewhere.length > 0) await writeRunState(dir, runState);
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
async function dropUnsent({ dir, state: runState, service, clock }: RetryOptions): Promise<void> {
  const round = lastRound(runState);
  const unsent = unsentOf(runState, service).filter((entry) => !isUpdate(runState, entry.round));
  runState.batches = runState.batches.filter((entry) => !unsent.includes(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(runState) < round) runState.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
}
