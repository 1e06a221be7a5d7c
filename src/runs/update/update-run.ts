import type { Limits } from "../../contract/limits.ts";
import { claimDirectory, pendingInputName, removeLeftovers, takePendingInput } from "../directory/claim.ts";
import { storeReferences, writeRunInput } from "../directory/input.ts";
import { intendedBatch, isUpdate, lastRound, readRunState, writeRunState } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import { makerAt, type RunService } from "../directory/service-identity.ts";
import { changedError, describeChanges, isRefused, planUpdate, type UpdatePlan } from "../plan/update.ts";
import { partsOf } from "../retry/plan-retry.ts";
import { leaveElsewhere } from "../retry/retry-run.ts";
import { sendBatches } from "../retry/send-batches.ts";
import { isUnsentHere } from "../run-batches.ts";
import { requestOf, type StartedRun, type StartOptions, startRun } from "../submit/start-run.ts";
import { finishSubmissions, openImages } from "./finish-submissions.ts";

export interface UpdateOptions extends StartOptions {
  /** The directory for messages. */
  shownDir: string;
  limits: Limits;
  /** Change the run to these prompts if it had others. Else that throws `DIRECTORY_CONFLICT`. */
  isUpdate: boolean;
  /** The advice to update the run, which makes this many images. */
  adviseUpdate: (images: number) => string;
}

/** How a submission begins: as a run of its own, or as one that goes on with an update or begins one. */
export type Start = { kind: "run" } | { kind: "resume" | "update"; earlier: RunState; update: UpdatePlan };

/**
 * Makes the batches of a run as `startRun` does. A run that had other prompts is updated: only the images of changed and
 * added prompts are made, and all others stay. The new input and the keys of the new batches are on disk before the first
 * request leaves; until then the run is as it was. After a kill the same command goes on, and nothing is paid twice.
 */
export async function startOrUpdate(options: UpdateOptions): Promise<StartedRun> {
  const start = await chooseStart(options, claimDirectory);
  if (start.kind === "run") return startRun(options);
  const { earlier, update } = start;
  return start.kind === "resume"
    ? resumeUpdate(options, earlier, update)
    : startUpdate(options, earlier, update);
}

/** Decides how a submission begins. `claim` checks the directory. Throws `DIRECTORY_CONFLICT` as `startOrUpdate` does. */
export async function chooseStart(options: UpdateOptions, claim: typeof claimDirectory): Promise<Start> {
  const { dir, plan, keys, shownDir } = options;
  const earlier = await readRunState(dir);
  if (earlier === null || earlier.kind === "realtime" || earlier.input_sha256 === null)
    return { kind: "run" };
  const isSame = earlier.input_sha256 === plan.inputSha256;
  if (isSame && (keys.isNew || earlier.updates === undefined)) return { kind: "run" };
  await claim(dir, earlier.input_sha256);
  const update = await planUpdate(dir, earlier, plan);
  if (isSame) return { kind: "resume", earlier, update };
  if (!options.isUpdate) throw changedError(shownDir, update, options.adviseUpdate);
  return { kind: "update", earlier, update };
}

/** The number of images that the start of an update sends, with those that an earlier command left open. */
export function imagesToSend(
  { kind, earlier, update }: Exclude<Start, { kind: "run" }>,
  service: RunService,
): number {
  if (kind === "update") return update.images.length + openImages(earlier, service);
  const unsent = unsentOf(earlier, service);
  return unsent.reduce((sum, { retried = [] }) => sum + retried.length, 0);
}

/** The batches of updates that were not sent yet. Those of retries are left to the next retry. */
function unsentOf(state: RunState, service: RunService): RunBatch[] {
  const isWanted = isOfUpdate(state);
  return state.batches.filter((entry) => isUnsentHere(state, entry, service) && isWanted(entry));
}

async function startUpdate(
  options: UpdateOptions,
  before: RunState,
  update: UpdatePlan,
): Promise<StartedRun> {
  const { dir, plan, service, limits } = options;
  const { items, images, superseded } = update;
  if (update.renamed.length > 0) options.reporter.note(describeChanges(update));
  const wanted = imagesToSend({ kind: "update", earlier: before, update }, service);
  const imageConsentMicroUsd = (await options.approve?.(wanted)) ?? null;
  const earlier = await finishSubmissions({ ...options, imageConsentMicroUsd }, before);
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
  const fresh = parts.map(({ chunk, request, ids }, i) => {
    const made = {
      idempotencyKey: chunk.contentKey,
      parentId: request.parentId,
      imageCount: chunk.imageCount,
    };
    return { ...intendedBatch(state.batches.length + i, makerAt(service), made), round, retried: ids };
  });
  state.batches.push(...fresh);
  await writeRunState(dir, state);
  await takePendingInput(dir, state);
  const sending = { ...options, state, imageConsentMicroUsd };
  const started = await sendBatches(sending, { fresh, isWanted: isOfUpdate(state) });
  await leaveElsewhere(sending);
  return started;
}

/** Goes on with a run that was updated to these prompts. */
async function resumeUpdate(
  options: UpdateOptions,
  state: RunState,
  update: UpdatePlan,
): Promise<StartedRun> {
  const { dir, service, submissions } = options;
  for (const entry of unsentOf(state, service)) submissions?.open.add(entry);
  const wanted = imagesToSend({ kind: "resume", earlier: state, update }, service);
  const imageConsentMicroUsd = (await options.approve?.(wanted)) ?? null;
  await removeLeftovers(dir);
  // The lines of the prompt file may have moved, and metadata may have changed.
  await writeRunInput(dir, update.items);
  const started = await sendBatches(
    { ...options, state, imageConsentMicroUsd },
    { isWanted: isOfUpdate(state) },
  );
  return { ...started, replayed: started.earlier.size > 0 };
}

function isOfUpdate(state: RunState): (entry: RunBatch) => boolean {
  return ({ round }) => isUpdate(state, round);
}
