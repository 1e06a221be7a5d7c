import { getBatch } from "../../client/batches/get.ts";
import type { Batch } from "../../client/wire/read-batch.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { counted } from "../../kernel/text.ts";
import { intendedBatch, lastRound, writeRunState } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import type { RunService } from "../directory/service-identity.ts";
import type { RunReporter } from "../reporter.ts";
import type { Submissions } from "../submit/pending-submissions.ts";
import type { StartedRun } from "../submit/start-run.ts";
import { submitBatch } from "../submit/submit-batch.ts";
import { partsOf, type RetryPart } from "./plan-retry.ts";

export interface RetryOptions {
  dir: string;
  state: RunState;
  service: RunService;
  limits: Limits;
  clock: Clock;
  reporter: RunReporter;
  signal?: AbortSignal | undefined;
  /** Records what becomes of the batches. */
  submissions?: Submissions | undefined;
  /** See `SubmitBatchOptions`. */
  imageConsentMicroUsd?: number | null;
}

/** Whether a retry was begun and is not finished. Single images that could not be fetched do not keep it open. */
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

/** Sends the batches that an open retry has not sent yet, and returns every batch of the run. */
export async function resumeRetry(options: RetryOptions): Promise<StartedRun> {
  for (const entry of unsentOf(options.state)) options.submissions?.open.add(entry);
  return sendOrDrop(options);
}

async function sendOrDrop(options: RetryOptions): Promise<StartedRun> {
  try {
    return await sendAll(options);
  } catch (error) {
    if (isFinal(error)) await dropUnsent(options);
    throw error;
  }
}

async function sendAll(options: RetryOptions): Promise<StartedRun> {
  const { dir, state: runState, service, limits, signal, submissions } = options;
  if (submissions !== undefined) submissions.total = runState.batches.length;
  const batches: Batch[] = [];
  let replayed = false;
  for (const entry of runState.batches) {
    signal?.throwIfAborted();
    if (entry.state === "created" && entry.id !== null) {
      const { batch } = await getBatch(service.http, entry.id, { signal });
      submissions?.known.set(batch.id, batch);
      batches.push(batch);
      continue;
    }
    const [part] = await partsOf(
      { dir, state: runState, limits },
      entry.parent_batch_id,
      entry.retried ?? [],
    );
    if (part === undefined) throw new ImgbatchError("INTERNAL", "A retry has nothing to send.");
    options.reporter.progress(`submitting ${counted(part.ids.length, "image")} again`);
    const found = await submitBatch({ ...options, ...part, entry });
    batches.push(found.batch);
    replayed ||= found.replayed;
  }
  return { state: runState, batches, replayed };
}

const FINAL: readonly ExitName[] = ["usage", "auth", "money", "conflict", "gone"];

/** Whether the service has refused the request, so that nothing was made. */
function isFinal(error: unknown): boolean {
  return error instanceof ImgbatchError && FINAL.includes(errorEntry(error.code).exit);
}

/** Removes unsent batches from the run state: a refused batch is not sent again as it is. The next retry makes a new plan. */
async function dropUnsent({ dir, state: runState, clock }: RetryOptions): Promise<void> {
  const round = lastRound(runState);
  const unsent = unsentOf(runState);
  runState.batches = runState.batches.filter((entry) => !unsent.includes(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(runState) < round) runState.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
}
