import type { Batch } from "../../client/batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { counted } from "../../kernel/text.ts";
import { claimDirectory, removeLeftovers } from "../directory/claim.ts";
import { storeReferences, writeRunInput } from "../directory/input.ts";
import type { Naming } from "../directory/names.ts";
import {
  intendedBatch,
  isUnsent,
  newRunState,
  submittedBatches,
  writeRunState,
} from "../directory/run-state.ts";
import type { RunState, SubmittedRequest } from "../directory/run-state-schema.ts";
import { makerAt, type RunService } from "../directory/service-identity.ts";
import { chooseKeys, type KeyChoice } from "../plan/idempotency-keys.ts";
import type { Chunk, Plan, RunRequest } from "../plan/plan.ts";
import type { RunReporter } from "../reporter.ts";
import { findBatch, isUnsentElsewhere } from "../run-batches.ts";
import { submittingText } from "../wait.ts";
import type { Submissions } from "./pending-submissions.ts";
import { submitAll } from "./submit-all.ts";
import { submitBatch } from "./submit-batch.ts";
import { locateInInput, undoRefusedRun } from "./undo-refused-run.ts";

export interface StartOptions {
  plan: Plan;
  dir: string;
  service: RunService;
  keys: KeyChoice;
  /** How the files of a new run are named. An earlier run keeps its names. Default: `id`. */
  names?: Naming;
  clock: Clock;
  reporter: RunReporter;
  signal?: AbortSignal | undefined;
  /** Records what becomes of the batches. */
  submissions?: Submissions | undefined;
  /**
   * Called before anything is sent, with the number of images whose batches were not made yet; may throw to refuse. Returns
   * the consent for one image; null if none is needed.
   */
  approve?: (images: number) => Promise<number | null>;
}

export interface StartedRun {
  state: RunState;
  /** In the order of the run. */
  batches: Batch[];
  /** Whether any of them had been submitted before. */
  replayed: boolean;
  /** The ids of the batches that had been submitted before. */
  earlier: ReadonlySet<string>;
}

/**
 * Makes the batches of a run, or finds those that an earlier attempt made. Each batch's key is in the run state on disk
 * before its request leaves, so that a crash never leads to a second batch.
 */
export async function startRun(options: StartOptions): Promise<StartedRun> {
  const { plan, dir, service, signal } = options;
  const earlier = await claimDirectory(dir, plan.inputSha256);
  const runState = prepareRunState(options, earlier);
  if (options.submissions !== undefined) noteOpen(options.submissions, runState, earlier);
  const chunks = plan.chunks.filter(({ index }) => isOfService(runState, index, service));
  const unsentImages = imagesToMake(chunks, runState);
  const imageConsentMicroUsd = (await options.approve?.(unsentImages)) ?? null;
  await writeRunState(dir, runState);
  await removeLeftovers(dir);
  await storeReferences(
    dir,
    plan.items.flatMap((item) => item.references),
  );
  await writeRunInput(dir, plan.items);

  const batchCount = plan.chunks.length;
  const imageCount = plan.chunks.reduce((sum, chunk) => sum + chunk.imageCount, 0);
  const made: Batch[] = [];
  const submitOne = async (chunk: Chunk) => {
    signal?.throwIfAborted();
    const entry = runState.batches[chunk.index];
    if (entry === undefined)
      throw new ImgbatchError("INTERNAL", "A batch of the run is missing from its run state.");
    if (entry.state !== "created")
      options.reporter.progress(submittingText(made, { imageCount, batch: chunk.index + 1, batchCount }));
    const batch = { request: plan.request, chunk, state: runState, entry, imageConsentMicroUsd };
    const one = await submitBatch({ ...options, ...batch }).catch((error: unknown) =>
      Promise.reject(locateInInput(error, chunk)),
    );
    made.push(one.batch);
    return one;
  };
  const pacing = service.drawsHere ? { clock: options.clock, signal } : null;
  const found = await submitAll(chunks, submitOne, pacing).catch(async (error: unknown) => {
    if (earlier === null) await undoRefusedRun(dir, runState, error);
    throw error;
  });
  // Requests under way have ended by now. Nothing else is waited for.
  signal?.throwIfAborted();
  const batches = found.map(({ batch }) => batch);
  const retries = await findRetries(runState, options);
  const old = found.filter(({ replayed }) => replayed);
  return {
    state: runState,
    batches: [...batches, ...retries],
    replayed: old.length > 0,
    earlier: new Set([...old.map(({ batch }) => batch.id), ...retries.map(({ id }) => id)]),
  };
}

/**
 * Whether a batch of the submission can be asked of the service. One that another service may have made without an answer is
 * not sent to this one: it may be paid already.
 */
function isOfService(runState: RunState, index: number, service: RunService): boolean {
  const entry = runState.batches[index];
  return entry === undefined || (entry.state !== "left" && !isUnsentElsewhere(runState, entry, service));
}

/** The number of images whose batches have no id yet. */
function imagesToMake(chunks: readonly Chunk[], { batches }: RunState): number {
  const unsent = chunks.filter(({ index }) => batches[index]?.state !== "created");
  return unsent.reduce((sum, chunk) => sum + chunk.imageCount, 0);
}

/** Marks batches whose request an earlier command sent, or was about to send: their outcome is not known. */
function noteOpen(submissions: Submissions, runState: RunState, earlier: RunState | null): void {
  submissions.total = runState.batches.length;
  const keys = new Set(earlier?.batches.map((batch) => batch.idempotency_key));
  for (const batch of runState.batches)
    if (isUnsent(batch) && keys.has(batch.idempotency_key)) submissions.open.add(batch);
}

/** Marks a started run as finished here: the next `--new` generates again instead of continuing this run. */
export async function leaveRun(dir: string, runState: RunState): Promise<void> {
  if (!runState.is_fresh) return;
  runState.is_fresh = false;
  await writeRunState(dir, runState);
}

/** Gets the batches of earlier retries. A batch with an unknown outcome is left to the next retry. */
async function findRetries(
  runState: RunState,
  { service, signal, submissions }: StartOptions,
): Promise<Batch[]> {
  const found: Batch[] = [];
  for (const entry of runState.batches) {
    const { round, id, state } = entry;
    if (round === 0 || id === null || state !== "created") continue;
    const batch = await findBatch(service.http, entry, id, signal);
    submissions?.known.set(id, batch);
    found.push(batch);
  }
  return found;
}

/** Returns the run state with which a run begins or goes on. Throws if the batches of the `earlier` one are others. */
export function prepareRunState(
  { plan, service, keys, names = "id", clock }: StartOptions,
  earlier: RunState | null,
): RunState {
  const { keys: chosen, isFresh } = chooseKeys(plan, keys, earlier);
  const known = earlier === null ? [] : submittedBatches(earlier).map((batch) => batch.idempotency_key);
  const isSame =
    earlier !== null && chosen.length === known.length && chosen.every((key, i) => key === known[i]);
  if (isSame) {
    const request = earlier.request ?? requestOf(plan.request);
    return { ...earlier, request };
  }
  refuseOtherKeys(known, chosen, keys);
  const runState = newRunState({
    baseUrl: service.identity,
    keyFingerprint: service.keyFingerprint,
    upstream: service.upstream,
    inputSha256: plan.inputSha256,
    isFresh,
    request: requestOf(plan.request),
    nowMs: clock.nowMs(),
    batches: chosen.map((idempotencyKey, index) => {
      const { imageCount = 1 } = plan.chunks[index] ?? {};
      const { parentId } = plan.request;
      return intendedBatch(index, makerAt(service), { idempotencyKey, parentId, imageCount });
    }),
  });
  return { ...runState, names: earlier === null ? names : (earlier.names ?? "id") };
}

/** Returns the settings that a retry of the run needs. */
export function requestOf({ model, name, mimeType, metadata, isReal = false }: RunRequest): SubmittedRequest {
  const request = { model, task_name: name, response_mime_type: mimeType, metadata };
  return isReal ? { ...request, images: "real" } : request;
}

/** Throws for other keys, or another split into batches, since the same prompts would be paid for again. */
function refuseOtherKeys(known: readonly unknown[], chosen: readonly string[], keys: KeyChoice): void {
  if (keys.isNew || known.length === 0) return;
  if (keys.explicit !== null) {
    const message =
      "This directory holds a run that was submitted with another idempotency key, or in other batches: add --new instead of --idempotency-key to generate and pay again, or choose another directory with --output.";
    throw new ImgbatchError("DIRECTORY_CONFLICT", message, { param: "--idempotency-key" });
  }
  if (known.length === chosen.length) return;
  const message = `This run was split into ${counted(known.length, "batch", "batches")}, not ${chosen.length}: give --max-batch as before, or --new to generate and pay again.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message);
}
