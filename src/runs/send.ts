import PQueue from "p-queue";
import type { Batch } from "../client/answers.ts";
import { createBatch, listItems } from "../client/batches.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { expandedCustomIds } from "../contract/limits.ts";
import { isTerminal } from "../contract/statuses.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import { counted } from "../kernel/text.ts";
import { commitPendingInput } from "./directory/claim.ts";
import { type RunInput, readRunInput } from "./directory/input.ts";
import { EMBEDDED, otherMaker, type RunReporter, type RunService } from "./directory/run-service.ts";
import {
  isUpdate,
  lastRound,
  recordBatch,
  retriedId,
  submittedBatches,
  supersededIn,
  writeRunState,
} from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import type { Asked } from "./plan/choose-model.ts";
import { requestOf } from "./request.ts";
import { findBatch, isUnsentElsewhere, isUnsentHere } from "./run-batches.ts";

/** A run whose batches a command makes or finds. */
export interface Run {
  dir: string;
  state: RunState;
  service: RunService;
  clock: Clock;
  reporter: RunReporter;
  signal?: AbortSignal | undefined;
  /** Records what becomes of the batches. */
  submissions?: Submissions | undefined;
  /** Returns the most that an image may hold, in micro-dollars, with the consent to pay it. Default: null, none. */
  consentOf?: ImageConsent | null;
  /** The quality of each model that images of the run without one ask for, where it is not the default any more. Default: none. */
  qualities?: Readonly<Record<string, string>>;
  /** The service takes the hash of a reference image whose bytes came earlier in the request. Default: no. */
  sharesReferences?: boolean;
  /** The provider that makes images in place of that of the run. Default: none. */
  instead?: string;
}

export type ImageConsent = (image: Asked) => number;

export interface StartedRun {
  state: RunState;
  /** In the order of the run. */
  batches: Batch[];
  /** Whether any of them had been submitted before. */
  replayed: boolean;
  /** The batches that had been submitted before, by id, as they were found. */
  found: ReadonlyMap<string, Batch>;
}

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

/** The batches of a run whose requests this service has to get, for the first time or again to find their batches. */
export function unsentBatches(state: RunState, service: RunService): RunBatch[] {
  return state.batches.filter((entry) => isUnsentHere(entry, service));
}

/** The number of images of batches. */
export function imagesIn(entries: readonly RunBatch[]): number {
  return entries.reduce((sum, { asked_count: asked = 1 }) => sum + asked, 0);
}

/** A line of the input as far as prices need it. */
interface AskedItem extends Asked {
  customId: string;
  outputCount: number;
}

/** Returns what the images of batches ask for. `items` are the prompts of the run. */
export function askedIn(
  entries: readonly Pick<RunBatch, "images" | "prompts" | "provider" | "model" | "again">[],
  items: readonly AskedItem[],
): Asked[] {
  const byId = new Map<string, Asked>();
  if (entries.some(({ images }) => images !== undefined))
    for (const item of items)
      for (const id of expandedCustomIds(item.customId, item.outputCount)) byId.set(id, item);
  return entries.flatMap(({ images, prompts: [first, count] = [0, 0], provider, model, again }) => {
    const other = provider === undefined && again === undefined ? {} : { model };
    return images === undefined
      ? items.slice(first, first + count).flatMap((item) => Array<Asked>(item.outputCount).fill(item))
      : images.map((id) => ({ ...byId.get(id), ...other }));
  });
}

/** Returns the ids in the run of the images of a batch. `items` are the prompts of the run. */
export function imageIdsOf(
  { images, prompts: [first, count] = [0, 0] }: Pick<RunBatch, "images" | "prompts">,
  items: readonly AskedItem[],
): string[] {
  const own = items.slice(first, first + count);
  return images ?? own.flatMap(({ customId, outputCount }) => expandedCustomIds(customId, outputCount));
}

/** Returns what the images ask for that the known batches of a run still have to make. `items` are the prompts of the run. */
export async function pendingIn(
  state: RunState,
  items: readonly AskedItem[],
  { http }: Pick<RunService, "http">,
  signal?: AbortSignal,
): Promise<Asked[]> {
  const asked: Asked[] = [];
  for (const entry of state.batches) {
    if (entry.id === null || isTerminal(entry.status ?? "")) continue;
    if ((await findBatch(http, entry, entry.id, signal)).isDone) continue;
    const listed = await listItems(http, entry.id, signal);
    const pending = new Set(listed.flatMap(({ status, customId }) => (status === "pending" ? customId : [])));
    const superseded = supersededIn(state, entry.round);
    const images = imageIdsOf(entry, items).filter((id) => pending.has(retriedId(id)) && !superseded.has(id));
    asked.push(...askedIn([{ ...entry, images }], items));
  }
  return asked;
}

/** Reads the input of a run as far as prices need it. */
export async function readAskedItems(dir: string): Promise<AskedItem[]> {
  const input = await readRunInput(dir);
  const items: AskedItem[] = [];
  for (const { custom_id: customId, output_count: outputCount = 1, ...line } of input.lines()) {
    const { model, size, quality } = line;
    items.push({ customId, outputCount, model, size, quality });
  }
  return items;
}

/** Requests in flight at once, where they are small. */
const AT_ONCE = 4;

interface SendOptions {
  /** Batches that this command adds to the run: no request for them has left yet. Default: none. */
  added?: readonly RunBatch[];
  /** Which unsent batches to send. Default: all. */
  isWanted?: (entry: RunBatch) => boolean;
  /**
   * Only find the batches that earlier attempts have made. A service of ours makes none, and the entries of batches that it
   * does not know stay unsent. Batches that are stopped stay so. Default: no.
   */
  isFindOnly?: boolean;
  /** Say of each batch of the submission that it existed already. Default: only of those that this command has found. */
  saysReused?: boolean;
  /** Returns what to throw for an error of a batch's request. Default: the same error. */
  explain?: (error: unknown, entry: RunBatch) => unknown;
}

/**
 * Makes every batch of a run that has no id yet, or finds the one that an earlier attempt made, and returns all batches
 * that this service can be asked for: a run begins and goes on with this function. It is the only place where a request to
 * make a batch leaves: its entry with its key is on disk by then, and a request that is repeated has the same key and the
 * same body, so that nothing is paid twice. Batches that another service may have made are not sent. The batches of a round
 * are sent together, after those of the rounds before it: the first alone, since its refusal mostly means that all are
 * refused. After a failure nothing new leaves, and the first error is thrown once all answers are known.
 */
export async function send(run: Run, options: SendOptions = {}): Promise<StartedRun> {
  const { dir, state, service, signal, submissions } = run;
  const { added = [], isWanted = () => true, isFindOnly = false, saysReused = false } = options;
  const { explain = (error) => error } = options;
  const unplanned = added.filter((entry) => !state.batches.includes(entry));
  if (unplanned.length > 0) state.finished_at = null;
  state.batches.push(...unplanned);
  await writeRunState(dir, state);
  await commitPendingInput(dir, state);
  const unsent = unsentBatches(state, service);
  const foreign = unsent.find(({ provider }) => provider !== undefined && provider !== run.instead);
  if (foreign !== undefined) {
    const message = `${foreign.provider} was about to make images of this run, and it is not known whether it does.`;
    const advice = `run the finish command with --upstream ${foreign.provider} again: nothing is paid twice`;
    throw new ImgbatchError("SUBMISSION_UNKNOWN", message, { advice });
  }
  if (submissions !== undefined) {
    submissions.total = state.batches.length;
    for (const entry of unsent) if (!added.includes(entry) && isWanted(entry)) submissions.open.add(entry);
  }
  const wanted = state.batches.filter(
    (entry) => entry.id !== null || (unsent.includes(entry) && isWanted(entry)),
  );
  let input: Promise<RunInput> | null = null;
  const readInput = () => {
    input ??= readRunInput(dir);
    return input;
  };
  const isLarge = unsent.length > 1 && (await readInput()).hasReferences;
  const left = new Set<RunBatch>();
  const found = new Map<RunBatch, Found>();
  const one = async (entry: RunBatch): Promise<void> => {
    signal?.throwIfAborted();
    const made = [...found.values()].map(({ batch }) => batch);
    if (entry.state === "created" && entry.id !== null) {
      const batch = await findBatch(service.http, entry, entry.id, signal);
      found.set(entry, { batch, replayed: true });
      if (!isFindOnly) unnamed.push(batch);
      submissions?.known.set(batch.id, batch);
      if (saysReused && entry.round === 0) reportReplay(run, batch, entry);
      return;
    }
    if (!isFindOnly) run.reporter.progress(progressText(state, entry, made));
    const wasUnmade = added.includes(entry) || entry.refused === true;
    if (entry.refused === true) {
      // From here on, the batch may be made.
      delete entry.refused;
      await writeRunState(dir, state);
    }
    left.add(entry);
    try {
      // A service refuses a parent that it does not know.
      const parent = made.find(({ id, isUnknown }) => id === entry.parent_batch_id && !isUnknown);
      const parentId = entry.round === 0 ? entry.parent_batch_id : (parent?.id ?? null);
      const body = async () => requestOf(run, entry, await readInput(), parentId);
      const answer = await create(run, entry, body, isFindOnly);
      if (answer === null) return;
      found.set(entry, answer);
      const { batch, replayed } = answer;
      if (isFindOnly) return;
      if (replayed) reportReplay(run, batch, entry);
      else run.reporter.event?.({ event: "batch_created", batch_id: batch.id, item_count: batch.itemCount });
    } catch (error) {
      // A refused key says nothing about the batch that it may have made.
      const isOpen = !wasUnmade && (isUpdate(state, entry.round) || isOfKey(error));
      if (isDefiniteRefusal(error) && !isOpen) refused.push(entry);
      throw explain(error, entry);
    }
  };
  /** Batches of earlier commands. They go on once no further batch is refused, for want of money say. */
  const unnamed: Batch[] = [];
  const failures: unknown[] = [];
  const refused: RunBatch[] = [];
  const attempt = async (entry: RunBatch) => {
    if (failures.length === 0) await one(entry).catch((error) => failures.push(error));
  };
  for (const round of [...new Set(wanted.map((entry) => entry.round))].sort((a, b) => a - b)) {
    const [first, ...others] = wanted.filter((entry) => entry.round === round);
    if (first !== undefined) await attempt(first);
    const queue = new PQueue({ concurrency: isLarge ? 1 : AT_ONCE });
    await queue.addAll(others.map((entry) => () => attempt(entry)));
    if (refused.length > 0)
      await recordRefused(run, [...refused, ...added.filter((entry) => !left.has(entry))]);
    if (failures.length > 0) throw failures[0];
    // Requests in flight have ended by now. Nothing else is waited for.
    signal?.throwIfAborted();
  }
  for (const batch of unnamed) await nameBatch(service, batch);
  await leaveElsewhere(run);
  const all = wanted.flatMap((entry) => found.get(entry) ?? []);
  const isSent = (entry: RunBatch) => left.has(entry) && found.get(entry)?.replayed === true;
  return {
    state,
    batches: all.map(({ batch }) => batch),
    replayed: wanted.some(isSent),
    found: new Map(all.flatMap(({ batch, replayed }) => (replayed ? [[batch.id, batch] as const] : []))),
  };
}

interface Found {
  batch: Batch;
  replayed: boolean;
}

/** Returns the batches of an entry's round: one retry may need several. */
const roundOf = ({ batches }: RunState, { round }: RunBatch) =>
  batches.filter((entry) => entry.round === round);

function progressText(state: RunState, entry: RunBatch, made: readonly Batch[]): string {
  if (entry.round > 0)
    return `submitting ${counted(imagesIn(roundOf(state, entry)), "image")}${isUpdate(state, entry.round) ? "" : " again"}`;
  const submitted = submittedBatches(state);
  if (submitted.length === 1) return "submitting";
  const successCount = made.reduce((sum, batch) => sum + batch.successCount, 0);
  return `${successCount}/${imagesIn(submitted)} images, submitting batch ${entry.index + 1} of ${submitted.length}`;
}

/**
 * Sends the request of an entry that is on disk with its key, and writes the batch that the service names into it. Returns
 * null when the batch was only to be found, and was never made.
 */
async function create(
  run: Run,
  entry: RunBatch,
  bodyOf: () => ReturnType<typeof requestOf>,
  isFindOnly: boolean,
): Promise<Found | null> {
  const { dir, service, state, signal, submissions, consentOf = null } = run;
  const { idempotency_key: key } = entry;
  if (key === null) throw new ImgbatchError("INTERNAL", "A batch of the run has no key.");
  const { body, items } = await bodyOf();
  signal?.throwIfAborted();
  const wasOpen = submissions?.open.has(entry) ?? false;
  submissions?.open.add(entry);
  try {
    const { batch, replayed } = await createBatch(service.http, body, key, {
      signal,
      answerSignal: submissions?.answerSignal,
      isFindOnly,
      consentMicroUsd: consentOf && items.reduce((sum, item) => sum + consentOf(item) * item.outputCount, 0),
    });
    submissions?.open.delete(entry);
    submissions?.known.set(batch.id, batch);
    requireOwnId(state, entry, batch);
    recordBatch(entry, batch);
    await writeRunState(dir, state);
    if (!isFindOnly) await nameBatch(service, batch);
    return { batch, replayed };
  } catch (error) {
    if (isFindOnly && error instanceof ImgbatchError && error.code === "BATCH_IMAGE_NOT_FOUND") {
      submissions?.open.delete(entry);
      return null;
    }
    if (!leavesOpen(error, signal)) {
      if (!wasOpen) submissions?.open.delete(entry);
    } else if (entry.state !== "created") {
      entry.state = "unknown";
      // If this fails, the `intent` on disk has the same effect. The first error is the one to report.
      await writeRunState(dir, state).catch(() => {});
    }
    throw error;
  }
}

/** A batch of the embedded service goes on while a command names it; one that any service has stopped goes on then. */
async function nameBatch(service: RunService, { id, isDone, waiting }: Batch): Promise<void> {
  if (isDone || (service.identity !== EMBEDDED && waiting?.code !== "STOPPED")) return;
  // Whoever waits for the batch tries again.
  await service.goOn?.(id).catch(() => {});
}

/** Whether an error leaves open what became of a request that makes a batch. */
function leavesOpen(error: unknown, signal: AbortSignal | undefined): boolean {
  const isLost = error instanceof ImgbatchError && error.code === "SUBMISSION_UNKNOWN";
  return isLost || (signal?.aborted === true && error === signal.reason);
}

/** Throws when two requests got the same batch: one set of images would stand for two sets of prompts. */
function requireOwnId(state: RunState, entry: RunBatch, { id }: Batch): void {
  const other = state.batches.find((each) => each !== entry && each.id === id);
  if (other === undefined) return;
  throw new ImgbatchError("BAD_RESPONSE", `The service answered ${id} to two different requests.`);
}

/** Reports a batch that was submitted before. */
export function reportReplay(
  { reporter, clock }: Pick<Run, "reporter" | "clock">,
  batch: Batch,
  { round }: Pick<RunBatch, "round">,
): void {
  reporter.event?.({ event: "batch_replayed", batch_id: batch.id, item_count: batch.itemCount });
  if (batch.isUnknown) return;
  const { id, createdAtMs } = batch;
  const ageMs = createdAtMs === null ? null : Math.max(0, clock.nowMs() - createdAtMs);
  const age = ageMs === null ? "" : ` submitted ${formatDuration(ageMs)} ago`;
  reporter.note(`re-using ${id}${age}${round > 0 ? "" : " (--new to generate again)"}`);
}

/** The 4xx statuses after which the request, or an earlier one with its key, may still have made something. */
const OPEN_STATUSES = [408, 409, 425, 429];

function isOfKey(error: unknown): boolean {
  return error instanceof ImgbatchError && [401, 403].includes(error.httpStatus);
}

/** Whether the service has refused a request, so that it made nothing. */
export function isDefiniteRefusal(error: unknown): boolean {
  if (!(error instanceof ImgbatchError) || error.code === "SUBMISSION_UNKNOWN") return false;
  const { httpStatus } = error;
  return httpStatus >= 400 && httpStatus < 500 && !OPEN_STATUSES.includes(httpStatus);
}

/**
 * Records that the service made none of these batches. An update sends them again as they are. Those of a retry are
 * dropped: the next retry makes a new plan.
 */
async function recordRefused({ dir, state, clock }: Run, refused: readonly RunBatch[]): Promise<void> {
  const round = lastRound(state);
  for (const entry of refused) if (isUpdate(state, entry.round)) entry.refused = true;
  const isDropped = (entry: RunBatch) =>
    refused.includes(entry) && entry.round > 0 && !isUpdate(state, entry.round);
  state.batches = state.batches.filter((entry) => !isDropped(entry));
  // Before a retry begins, everything earlier has been collected.
  if (lastRound(state) < round) state.finished_at = new Date(clock.nowMs()).toISOString();
  await writeRunState(dir, state);
}

/**
 * Marks the unsent batches of other services that this one has got the requests for: those of the rounds before the last one
 * that it makes. Later ones stay open, since only their own service can find them.
 */
async function leaveElsewhere({ dir, state, service }: Run): Promise<void> {
  const last = lastRound({ batches: state.batches.filter((entry) => otherMaker(entry, service) === null) });
  const left = state.batches.filter((entry) => entry.round < last && isUnsentElsewhere(entry, service));
  for (const entry of left) entry.state = "left";
  if (left.length > 0) await writeRunState(dir, state);
}
