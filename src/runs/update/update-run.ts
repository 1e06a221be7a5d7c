import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { claimDirectory, removeLeftovers } from "../directory/claim.ts";
import { writeRunInput } from "../directory/input-file.ts";
import { pendingInputName, takePendingInput } from "../directory/pending-input.ts";
import { storeReferences } from "../directory/references.ts";
import { intendedBatch, isUpdate, lastRound, readRunState, writeRunState } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import { partsOf, type RetryPart } from "../retry/plan-retry.ts";
import { sendBatches } from "../retry/send-batches.ts";
import { requestOf, type StartedRun, type StartOptions, startRun } from "../submit/start-run.ts";
import { changedError, isRefused, planUpdate, type UpdatePlan } from "./plan-update.ts";

export interface UpdateOptions extends StartOptions {
  /** The directory for messages. */
  shownDir: string;
  limits: Limits;
  /** Change the run to these prompts if it had others. Else that throws `DIRECTORY_CONFLICT`. */
  isUpdate: boolean;
  /** The advice to update the run, which makes so many images. */
  adviseUpdate: (images: number) => string;
  /** The advice to finish the submission of the run, or its retry or update, which was not finished. */
  adviseFinish: (what: "submit" | "retry") => string;
}

/**
 * Makes the batches of a run as `startRun` does. A run that had other prompts is updated: only the images of changed and
 * added prompts are made, and all others stay. The new input and the keys of the new batches are on disk before the first
 * request leaves; until then the run is as it was. After a kill the same command goes on, and nothing is paid twice.
 */
export async function startOrUpdate(options: UpdateOptions): Promise<StartedRun> {
  const { dir, plan, keys, shownDir, service } = options;
  const earlier = await readRunState(dir);
  if (earlier === null || earlier.kind === "realtime" || earlier.input_sha256 === null)
    return startRun(options);
  const isSame = earlier.input_sha256 === plan.inputSha256;
  if (isSame && (keys.isNew || earlier.updates === undefined)) return startRun(options);
  const { identity, keyFingerprint } = service;
  await claimDirectory(dir, { identity, keyFingerprint, inputSha256: earlier.input_sha256 });
  const update = await planUpdate(dir, earlier, plan);
  if (isSame) return resumeUpdate(options, earlier, update);
  if (!options.isUpdate) throw changedError(shownDir, update, options.adviseUpdate);
  requireSent(options, earlier);
  return startUpdate(options, earlier, update);
}

/** Throws if a batch of the run may exist without being known: its images would be paid for and lost. */
function requireSent({ shownDir, adviseFinish }: UpdateOptions, { batches }: RunState): void {
  const open = batches.filter((batch) => batch.state !== "created" && !isRefused(batch));
  if (open.length === 0) return;
  const message = `The earlier submission of ${shownDir} was not finished: it may have made images that are not known here.`;
  const advice = adviseFinish(open.some(({ round }) => round === 0) ? "submit" : "retry");
  throw new ImgbatchError("SUBMISSION_UNKNOWN", message, { advice });
}

async function startUpdate(
  options: UpdateOptions,
  earlier: RunState,
  { items, images, superseded }: UpdatePlan,
): Promise<StartedRun> {
  const { dir, plan, service, limits } = options;
  const imageConsentMicroUsd = (await options.approve?.(images.length)) ?? null;
  await removeLeftovers(dir);
  await storeReferences(
    dir,
    items.flatMap((item) => item.references),
  );
  const input = pendingInputName(plan.inputSha256);
  await writeRunInput(dir, items, input);
  const round = lastRound(earlier) + 1;
  const state: RunState = {
    ...earlier,
    base_url: service.identity,
    input_sha256: plan.inputSha256,
    is_fresh: false,
    finished_at: null,
    request: requestOf(plan.request),
    batches: earlier.batches
      .filter((batch) => !isRefused(batch))
      .map((batch, index) => ({ ...batch, index })),
    updates: [...(earlier.updates ?? []), { round, superseded }],
  };
  const parentId = state.batches.findLast(({ id }) => id !== null)?.id ?? null;
  const parts = images.length === 0 ? [] : await partsOf({ dir, state, limits, input }, parentId, images);
  const fresh = parts.map((part, i) => batchOf(part, state.batches.length + i, round));
  state.batches.push(...fresh);
  await writeRunState(dir, state);
  await takePendingInput(dir, state);
  return sendBatches({ ...options, state, imageConsentMicroUsd }, { fresh, isWanted: isOfUpdate(state) });
}

function batchOf({ chunk, request, ids }: RetryPart, index: number, round: number): RunBatch {
  const { contentKey: idempotencyKey, imageCount } = chunk;
  const { parentId } = request;
  return { ...intendedBatch(index, { idempotencyKey, parentId, imageCount }), round, retried: ids };
}

/** Goes on with a run that was updated to these prompts. Batches of retries that were not sent are left to the next retry. */
async function resumeUpdate(
  options: UpdateOptions,
  state: RunState,
  { items }: UpdatePlan,
): Promise<StartedRun> {
  const { dir, submissions } = options;
  const isWanted = isOfUpdate(state);
  const unsent = state.batches.filter((entry) => entry.state !== "created" && isWanted(entry));
  for (const entry of unsent) submissions?.open.add(entry);
  const images = unsent.reduce((sum, { retried = [] }) => sum + retried.length, 0);
  const imageConsentMicroUsd = (await options.approve?.(images)) ?? null;
  await removeLeftovers(dir);
  // The lines of the prompt file may have moved, and metadata may have changed.
  await writeRunInput(dir, items);
  const started = await sendBatches({ ...options, state, imageConsentMicroUsd }, { isWanted });
  return { ...started, replayed: started.earlier.size > 0 };
}

function isOfUpdate(state: RunState): (entry: RunBatch) => boolean {
  return ({ round }) => isUpdate(state, round);
}
