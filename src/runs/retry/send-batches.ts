import type { Batch } from "../../client/batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { counted } from "../../kernel/text.ts";
import { isUpdate, writeRunState } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import type { RunService } from "../directory/service-identity.ts";
import type { RunReporter } from "../reporter.ts";
import { findBatch, isUnsentHere } from "../run-batches.ts";
import type { Submissions } from "../submit/pending-submissions.ts";
import type { StartedRun } from "../submit/start-run.ts";
import { submitBatch } from "../submit/submit-batch.ts";
import { isOutright } from "../submit/undo-refused-run.ts";
import { partsOf } from "./plan-retry.ts";

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

interface SendOptions {
  /** Batches that this command has added to the run: no request for them has left yet. */
  fresh?: readonly RunBatch[];
  /** Which unsent batches to send. Default: all. */
  isWanted?: (entry: RunBatch) => boolean;
}

/** Sends the unsent batches of the retries and updates of a run, and returns every batch of the run that has an id. */
export async function sendBatches(
  options: RetryOptions,
  { fresh = [], isWanted = () => true }: SendOptions = {},
): Promise<StartedRun> {
  const { state: runState, service, signal, submissions } = options;
  if (submissions !== undefined) submissions.total = runState.batches.length;
  const batches: Batch[] = [];
  const earlier = new Set<string>();
  let replayed = false;
  for (const entry of runState.batches) {
    signal?.throwIfAborted();
    if (entry.state === "created" && entry.id !== null) {
      const batch = await findBatch(service.http, entry, entry.id, signal);
      submissions?.known.set(batch.id, batch);
      batches.push(batch);
      earlier.add(batch.id);
    } else if (isUnsentHere(runState, entry, service) && isWanted(entry)) {
      const parent = batches.find(({ id, isUnknown }) => id === entry.parent_batch_id && !isUnknown);
      const found = await send(options, entry, { isFresh: fresh.includes(entry), parent });
      batches.push(found.batch);
      if (!found.replayed) continue;
      replayed = true;
      earlier.add(found.batch.id);
    }
  }
  return { state: runState, batches, replayed, earlier };
}

async function send(
  options: RetryOptions,
  entry: RunBatch,
  { isFresh, parent }: { isFresh: boolean; parent: Batch | undefined },
): Promise<{ batch: Batch; replayed: boolean }> {
  const { dir, state: runState, limits, reporter } = options;
  const { retried: ids = [], parent_batch_id: parentId } = entry;
  // The batch stays as it was planned, also if this command has a smaller --max-batch.
  const least = { itemsPerBatch: ids.length, outputImagesPerBatch: ids.length };
  const enough = Object.entries(least).map(([name, count]) => [
    name,
    Math.max(limits[name as keyof typeof least], count),
  ]);
  const run = { dir, state: runState, limits: { ...limits, ...Object.fromEntries(enough) } };
  const [part] = await partsOf(run, parentId, ids);
  if (part === undefined) throw new ImgbatchError("INTERNAL", "A batch has nothing to send.");
  const ofUpdate = isUpdate(runState, entry.round);
  reporter.progress(`submitting ${counted(ids.length, "image")}${ofUpdate ? "" : " again"}`);
  const wasUnmade = isFresh || entry.refused === true;
  if (entry.refused === true) {
    // From here on, the batch may be made.
    delete entry.refused;
    await writeRunState(dir, runState);
  }
  try {
    // A service refuses a parent that it does not know.
    const request = { ...part.request, parentId: parent?.id ?? null };
    return await submitBatch({ ...options, ...part, request, entry });
  } catch (error) {
    if (ofUpdate && wasUnmade && isOutright(error)) {
      entry.refused = true;
      await writeRunState(dir, runState);
    }
    throw error;
  }
}
