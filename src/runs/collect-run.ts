import { join } from "node:path";
import { type Batch, type BatchItem, hasImages } from "../client/answers.ts";
import { listItems } from "../client/batches.ts";
import { removeFile } from "../client/file-errors.ts";
import { deadline } from "../client/poll.ts";
import { MAY_BE_PAID_TWICE, PAID_TWICE_NOTE } from "../contract/batch-api.ts";
import { type ErrorCode, ImgbatchError } from "../contract/errors.ts";
import { mayPass } from "../http/retries.ts";
import type { Clock } from "../kernel/clock.ts";
import { groupBy } from "../kernel/json.ts";
import { type Cost, microsToNumber, numberToMicros } from "../kernel/money.ts";
import { foldFileName } from "../kernel/text.ts";
import { commitPendingInput, removePassingZips, withRunLock } from "./directory/claim.ts";
import { type RunInput, readRunInput } from "./directory/input.ts";
import { createDiskNames, imageFileName, imageStem } from "./directory/names.ts";
import {
  isSupersededIn,
  moveAway,
  type ResultLine,
  readResults,
  setAside,
  setAsideStray,
  writeResults,
} from "./directory/results.ts";
import { isIntact, type ResultFile } from "./directory/run-files.ts";
import { otherMaker, type RunReporter, type RunService } from "./directory/run-service.ts";
import {
  recordBatch,
  retriedId,
  submittedBatches,
  supersededIn,
  writeRunState,
} from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import { convertFiles, isOfOtherType, notesOf } from "./fetch/convert-files.ts";
import { fetchImages } from "./fetch/fetch-images.ts";
import { findBatch, recordedItems, unknownBatches } from "./run-batches.ts";
import { CLIENT, isUnknownHere, scopeOf, stands } from "./standing.ts";

export interface CollectOptions {
  dir: string;
  state: RunState;
  /** The batches of the run state that are known by id, in its order; all of them have ended. */
  batches: readonly Batch[];
  service: RunService;
  keepZip: boolean;
  clock: Clock;
  reporter: RunReporter;
  signal?: AbortSignal | undefined;
  /**
   * When the images of a whole batch cannot be fetched now, write the error into their lines instead of throwing it, so
   * that the failed images are known. Default: only when they were deleted.
   */
  isForgiving?: boolean;
  /** When the command began, in ms since 1970. Default: now, so that nothing counts as paid since. */
  beganMs?: number;
  /** The batches, by id, as an earlier command had left them. All that the others cost is paid now. Default: all batches. */
  found?: ReadonlyMap<string, Batch>;
  /** The ids of the images that this command has saved and reported before their batches ended. Default: none. */
  early?: ReadonlySet<string>;
}

export interface RunOutcome {
  dir: string;
  batches: readonly Batch[];
  /** The batches that decide how the run ended: those of the last retry, if there was one. */
  deciding: readonly Batch[];
  /** One for each image that was asked for, in the order of the input. */
  lines: ResultLine[];
  /** Items whose files were missing or damaged here, and now are not. */
  fetchedCount: number;
  /** Whether `retry.jsonl` holds failed items. */
  hasRetry: boolean;
  /** The lines of the prompt files whose images failed, where they are known. */
  failedAt: { file: string; line: number }[];
  /** What was captured since the command began, in micro-dollars of real money. */
  paidNowMicroUsd: number;
  /** Why the service does not know a batch of the run, by its id. */
  unknown: ReadonlyMap<string | null, ImgbatchError>;
  /** Set if each image was a request of its own. */
  direct?: DirectOutcome;
}

/** What is known of a run whose images are requests of their own, and what this command has paid for. */
export interface DirectOutcome {
  /** Images that an earlier command had made. */
  keptCount: number;
  /** The results of the images that this command has asked for, each with its price; 0 for a failure. */
  asked: readonly ResultLine[];
  /** What the images cost that this command has made; null when the service does not say. */
  cost: Cost | null;
  /** Whether the prices are no real money, because the images are drawn. */
  isPlay: boolean;
  /** The error that ended the run before every image was requested. Null when it ran to its end. */
  stop: ImgbatchError | null;
  /** The last failure that was not about one prompt. Null without one. */
  failure: ImgbatchError | null;
  /** Requests that an interruption ended before their answer came: they may be billed. */
  abandonedCount: number;
}

/**
 * Brings the images of ended batches into the directory: fetches missing and damaged ones, verifies, and writes the
 * results. When single images cannot be fetched, their lines give the reason. An error of a whole batch does not stop the
 * others; unless `isForgiving`, the first such error is thrown at the end, and the earlier results stay. An error of the
 * disk, the key or the account ends everything at once.
 */
export async function collectRun(options: CollectOptions): Promise<RunOutcome> {
  const { dir, state: runState, batches, service, signal, reporter, early = new Set() } = options;
  await commitPendingInput(dir, runState);
  let earlier = await setAside(dir, await readResults(dir), isSupersededIn(runState), reporter);
  const input = await readRunInput(dir);
  const { pathFor, free } = pathsOf(runState, batches, earlier, input);
  const lines = new Map<string, ResultLine>();
  const errors: unknown[] = [];
  let fetchedCount = early.size;
  let paidNowMicroUsd = 0;
  const entries = new Map(runState.batches.map((entry) => [entry.id, entry]));
  const roundOf = (batch: Batch) => entries.get(batch.id)?.round ?? 0;
  const unknown = unknownBatches(runState, batches, service);
  /** Images that were made again because a person wanted another picture: the earlier ones do not stand for them any more. */
  const replaced = new Set<string>();
  const replace = async (batch: Batch, ids: readonly string[]) => {
    const isEarlier = (line: ResultLine) => line.batch_id !== batch.id && ids.includes(line.custom_id);
    for (const { path } of earlier.filter(isEarlier).flatMap(({ files }) => files)) free(path);
    for (const id of ids) replaced.add(id);
    earlier = await setAside(dir, earlier, isEarlier, reporter);
  };
  // The last attempt at an image counts, so earlier attempts are not fetched any more, unless only they have the image.
  for (const batch of batches.toSorted((a, b) => roundOf(b) - roundOf(a))) {
    const entry = entries.get(batch.id);
    if (entry !== undefined) recordBatch(entry, batch);
    const superseded = supersededIn(runState, roundOf(batch));
    const gone = new Set([...superseded, ...replaced]);
    const isWanted = (id: string) => {
      const later = lines.get(id);
      return !gone.has(id) && (later === undefined || !stands(later, "here"));
    };
    try {
      const reason = goneOf(batch, entry && unknown.get(entry));
      const facts = { entry, gone: reason, isWanted, earlier, pathFor, replace };
      const found = await collectBatch(options, batch, facts);
      fetchedCount += found.fetchedCount;
      paidNowMicroUsd += paidNow(batch, found.items, options);
      for (const line of found.lines) {
        const later = lines.get(line.custom_id);
        if (later === undefined) lines.set(line.custom_id, line);
        else if (!stands(later, "here") && stands(line, "here"))
          lines.set(line.custom_id, later.again === undefined ? line : notRemade(line, later));
      }
      if (entry !== undefined) noteMissing(entry, found.lines);
    } catch (error) {
      if (scopeOf(error, { signal }) === "run") throw error;
      errors.push(error);
    }
  }
  if (errors.length > 0) {
    await writeRunState(dir, runState);
    throw errors[0];
  }
  const isComplete = runState.batches.every(
    ({ id, state }) => state === "left" || batches.some((batch) => batch.id === id),
  );
  const asked = [...input.keys()];
  if (input.damage !== null) options.reporter.note(`${input.damage}: what it held is not known any more`);
  else {
    for (const line of lostLines(runState, asked, [...lines.values()], unknown))
      lines.set(line.custom_id, line);
    if (isComplete) requireAskedFor(asked, [...lines.values()]);
  }
  const last = inputOrder(input, lines);
  const { hasRetry, failedAt } = await writeResults(dir, last, input);
  await removeSuperseded(dir, earlier, last);
  if (isComplete && input.damage === null) await setAsideStray(dir, runState, earlier, last, input);
  await removePassingZips(dir);
  if (fetchedCount > 0) runState.finished_at = null;
  // The service that knows the batches may still make the images.
  if (!last.some(isUnknownHere)) runState.finished_at ??= new Date(options.clock.nowMs()).toISOString();
  await writeRunState(dir, runState);
  const round = batches.reduce((last, batch) => Math.max(last, roundOf(batch)), 0);
  const deciding = batches.filter((batch) => roundOf(batch) === round);
  const reasons = new Map([...unknown].map(([{ id }, reason]) => [id, reason]));
  const facts = { fetchedCount, paidNowMicroUsd, hasRetry, failedAt, unknown: reasons };
  return { dir, batches, deciding, lines: last, ...facts };
}

/** Says in the line of an earlier picture why it was not made again. */
function notRemade(line: ResultLine, { error, may_be_billed: billed }: ResultLine): ResultLine {
  const note = `${NOT_REMADE}${error?.code ?? "NO_OUTCOME"}: ${error?.message ?? "it has no outcome"}`;
  const notes = [...(line.notes ?? []).filter((each) => !each.startsWith(NOT_REMADE)), note];
  return {
    ...line,
    notes,
    // It counts what the requests before may cost, too.
    ...(billed !== undefined && { may_be_billed: billed }),
  };
}

/** Begins the note of a picture that was to be replaced. */
export const NOT_REMADE = "not made again: ";

/** Returns results in the order of the input, which services need not keep. Lines of unknown ids come last. */
function inputOrder(input: RunInput, lines: ReadonlyMap<string, ResultLine>): ResultLine[] {
  return [...new Set([...input.keys(), ...lines.keys()])].flatMap((id) => lines.get(id) ?? []);
}

/**
 * Gives the images of a run their paths. Files of an earlier command keep theirs, so that a repair changes nothing else, until
 * they are moved away: then `free`.
 */
function pathsOf(
  { names: naming = "id" }: RunState,
  batches: readonly Pick<Batch, "id">[],
  earlier: readonly ResultLine[],
  input: RunInput,
): { pathFor: FetchJob["pathFor"]; free: (path: string) => void } {
  const names = createDiskNames();
  const ids = new Set(batches.map((batch) => batch.id));
  for (const line of earlier) {
    if (ids.has(line.batch_id ?? "")) for (const file of line.files) names.keep(file.path);
  }
  return {
    pathFor: (id, index, type) => names.takeImage(id, index, type, imageStem(id, naming, input.get(id))),
    free: names.free,
  };
}

/** Returns what was captured of an ended batch since the command began. `items` are all of its items. */
function paidNow(
  batch: Batch,
  items: readonly BatchItem[],
  { service, clock, beganMs = clock.nowMs(), found }: CollectOptions,
): number {
  const { id, actualCostMicroUsd: cost, isPlay, isUnknown, successCount } = batch;
  const earlier = found?.get(id);
  if (isPlay || isUnknown || cost === null || found === undefined) return 0;
  if (earlier === undefined) return cost;
  const paid = items.filter(({ status }) => status === "success");
  // The clock of another machine may be another one, and other services do not say when an image was made.
  if (service.isLocal && paid.every(({ finishedAtMs }) => finishedAtMs !== null))
    return paid
      .filter(({ finishedAtMs }) => (finishedAtMs ?? 0) >= beganMs)
      .reduce((sum, { facts }) => sum + numberToMicros(facts.cost ?? 0), 0);
  const since = earlier.isDone ? 0 : Math.max(0, successCount - earlier.successCount);
  return successCount === 0 ? 0 : Math.round((cost * since) / successCount);
}

/**
 * Brings what the ended batches of a run have made into its directory, where others may still go on. An error of a whole
 * batch stands in its lines. Returns null if no batch has ended.
 */
export async function collectSoFar(
  run: Omit<CollectOptions, "batches" | "keepZip" | "isForgiving">,
): Promise<RunOutcome | null> {
  const { state, service, signal } = run;
  const batches: Batch[] = [];
  for (const entry of state.batches)
    if (entry.id !== null && otherMaker(entry, service) === null)
      batches.push(await findBatch(service.http, entry, entry.id, signal));
  const ended = batches.filter(({ isDone }) => isDone);
  if (ended.length === 0) return null;
  const { finished_at: before } = state;
  const outcome = await collectRun({ ...run, batches: ended, keepZip: false, isForgiving: true });
  if (ended.length < state.batches.length && before === null) {
    state.finished_at = null;
    await writeRunState(run.dir, state);
  }
  return outcome;
}

/** Records how many images are missing, for another attempt. No count means that all are here or have failed. */
function noteMissing(entry: RunBatch, lines: readonly ResultLine[]): void {
  const count = lines.filter((line) => stands(line, "later", "lost")).length;
  if (count > 0) entry.missing_count = count;
  else delete entry.missing_count;
}

const BILLED_ELSEWHERE = `${MAY_BE_PAID_TWICE}: the provider whose job was ended without this image may bill it, too`;

type FetchJob = Parameters<typeof fetchImages>[0];

/** The facts of a run that collecting one batch needs. */
interface Collected extends Pick<FetchJob, "gone" | "pathFor"> {
  entry: RunBatch | undefined;
  /** Whether the batch still stands for an image, by its id in the run. */
  isWanted: (id: string) => boolean;
  earlier: readonly ResultLine[];
  /** Moves the earlier pictures of images to `versions/`, because the batch has made others. */
  replace: (batch: Batch, ids: readonly string[]) => Promise<void>;
}

/** Brings what a batch has made. Of a batch that has not ended, these are the images that the service gives early, some at a time. */
async function collectBatch(
  options: Omit<CollectOptions, "batches">,
  batch: Batch,
  { entry, gone, isWanted, earlier, pathFor, replace }: Collected,
): Promise<{ lines: ResultLine[]; items: readonly BatchItem[]; fetchedCount: number }> {
  const { dir, service, signal, reporter, early } = options;
  const { http } = service;
  const isEarly = !batch.isDone;
  const type = options.keepZip ? null : (options.state.request?.response_mime_type ?? null);
  // The images of a retry may have been sent under other ids.
  const ids = new Map(entry?.images?.map((id) => [retriedId(id), id]));
  const idOf = (customId: string) => ids.get(customId) ?? customId;
  const { isUnknown } = batch;
  const listed = isUnknown
    ? recordedItems(earlier, batch.id, entry?.images !== undefined)
    : await listItems(http, batch.id, signal, entry?.asked_count, isEarly ? ["images"] : undefined);
  if (!isUnknown) requireWholeList(batch, listed);
  const wanted = listed
    .filter((item) => isWanted(idOf(item.customId)) && (!isEarly || isGivenEarly(item)))
    .slice(0, isEarly ? MOST_AT_ONCE : undefined);
  const remade = entry?.again === undefined ? [] : wanted.filter(hasImages);
  if (remade.length > 0)
    await replace(
      batch,
      remade.map(({ customId }) => idOf(customId)),
    );
  const before = new Map(
    earlier.filter((line) => line.batch_id === batch.id).map((line) => [line.custom_id, line]),
  );
  const known = new Map<string, ResultLine>();
  for (const { customId } of wanted) {
    const line = before.get(idOf(customId));
    if (line !== undefined) known.set(customId, await asFetched(dir, line));
  }
  const job: FetchJob = {
    http,
    dir,
    batch,
    gone,
    items: listed,
    wanted,
    signal,
    reporter,
    earlier: known,
    pathFor: (customId, index, type) => pathFor(idOf(customId), index, type),
  };
  const { files, problems, failure, fetchedCount } = await fetchImages(job, options);
  for (const item of wanted) {
    const fetched = files.get(item.customId);
    if (type === null || gone !== null || fetched === undefined || !isOfOtherType(item.facts)) continue;
    const kept = before.get(idOf(item.customId))?.files ?? [];
    files.set(item.customId, {
      ...fetched,
      files: await convertFiles(job, item, { ...fetched, kept, type }),
    });
  }
  const isForgiven = options.isForgiving === true || failure === gone;
  if (failure !== null && !isForgiven && failure.code !== "BATCH_IMAGE_OUTPUT_DELETED") throw failure;
  const billedNote = entry?.provider === undefined ? PAID_TWICE_NOTE : BILLED_ELSEWHERE;
  // Until they are made again, the files that were made of the same picture stand.
  const derivedBefore = (id: string, [picture]: readonly ResultFile[]) => {
    const { derived, files: [file] = [] } = before.get(id) ?? {};
    return derived !== undefined && file?.sha256 === picture?.sha256 ? { derived } : {};
  };
  const lines = wanted.map((item): ResultLine => {
    const found = files.get(item.customId) ?? { files: [] };
    const again = entry?.again?.images[idOf(item.customId)];
    const notes = notesOf(item.facts, found.files);
    const before = isUnknown ? undefined : entry?.may_be_billed?.[idOf(item.customId)];
    const mayBeTwice = before !== undefined && (entry?.provider !== undefined || hasImages(item));
    const noted = mayBeTwice && !notes.includes(billedNote) ? [...notes, billedNote] : notes;
    const billed = numberToMicros(item.facts.may_be_billed ?? 0) + numberToMicros(before ?? 0);
    const problem = problems.get(item.customId);
    const error = problem === undefined ? errorOf(item, batch) : undelivered(problem);
    return {
      custom_id: idOf(item.customId),
      status: item.status,
      batch_id: batch.id,
      ...found,
      ...item.facts,
      ...(billed > 0 && { may_be_billed: microsToNumber(billed) }),
      ...(noted.length > 0 && { notes: noted }),
      ...(again === undefined ? {} : { again }),
      ...(batch.isPlay && item.facts.cost !== undefined && { play_money: true as const }),
      ...derivedBefore(idOf(item.customId), found.files),
      ...(error == null ? {} : { error }),
    };
  });
  const isTold = ({ custom_id, files }: ResultLine) =>
    early?.has(custom_id) === true || (isEarly && files.length === 0);
  for (const { custom_id, status, error = null } of lines.filter((line) => !isTold(line)))
    reporter.event?.({ event: "item_ended", batch_id: batch.id, custom_id, status, error });
  return { lines, items: listed, fetchedCount };
}

/** Whether the service gives the image of an item before its batch has ended: those that do list it. */
const isGivenEarly = (item: BatchItem) =>
  hasImages(item) && item.imageCount === 1 && Array.isArray(item.raw.images);

/** After each look, the loop rests this many times as long as the look took, so that saving early slows no image down. */
const RESTS = 10;
const SHORTEST_REST_MS = 500;
/** How many images are saved before the results are written. */
const MOST_AT_ONCE = 16;
/** How long a stop may take to save what was made. */
const LAST_LOOK_MS = 5_000;

/** What is known of a run from the first look on. */
interface EarlyRun extends Pick<Collected, "pathFor"> {
  /** The results so far, by id. */
  lines: Map<string, ResultLine>;
  input: RunInput;
  /** Ids whose files would have the same name: which of them gets it follows from their order, once all are made. */
  unclear: ReadonlySet<string>;
}

export interface EarlyOptions
  extends Pick<CollectOptions, "dir" | "state" | "service" | "clock" | "reporter" | "signal"> {
  /** Whether the caller has the lock of the run. Otherwise each look takes it, and is left out while another command works there. */
  isLocked: boolean;
  /** Called with all results so far each time there are more. */
  onSaved: (lines: readonly ResultLine[], input: RunInput) => void;
}

/**
 * Saves and verifies the images of a run while its batches are under way, where the service gives them. What it does not save,
 * `collectRun` fetches at the end: the directory is then the same as without it.
 */
export class EarlyImages {
  readonly #options: EarlyOptions;
  readonly #resting = new AbortController();
  readonly #saved = new Set<string>();
  #states: readonly Batch[] = [];
  #seenCount = 0;
  #work: Promise<void> | null = null;
  /** Null before the first look. */
  #run: EarlyRun | null = null;
  /** The results of an earlier run are in the directory, or the service gives nothing early. */
  #isOff = false;

  constructor({ reporter, ...options }: EarlyOptions) {
    // The progress of the run stays in sight.
    this.#options = { ...options, reporter: { ...reporter, progress: () => {}, detail: () => {} } };
  }

  /** Takes the batches of the run as they are now. */
  notice(states: readonly Batch[]): void {
    this.#states = states;
    if (this.#isOff || this.#count() <= this.#seenCount) return;
    this.#work ??= this.#follow();
    // `end` throws it.
    this.#work.catch(() => {});
  }

  /** Ends the work after the batches have ended, and returns the ids of the images that were saved. */
  async end(): Promise<ReadonlySet<string>> {
    this.#resting.abort();
    await this.#work;
    return this.#saved;
  }

  /** Ends the work while the batches are under way: saves what was made until now. Returns as `end` does. */
  async leave(): Promise<ReadonlySet<string>> {
    const saved = await this.end();
    if (!this.#isOff && this.#count() > saved.size) {
      const limit = deadline(this.#options.clock, LAST_LOOK_MS);
      await this.#save(limit.signal).finally(limit.stop);
    }
    return saved;
  }

  #count(): number {
    return this.#states.reduce((sum, { isDone, successCount }) => sum + (isDone ? 0 : successCount), 0);
  }

  async #follow(): Promise<void> {
    const { clock, signal } = this.#options;
    while (!this.#resting.signal.aborted && signal?.aborted !== true && !this.#isOff) {
      if (this.#count() <= this.#seenCount) break;
      this.#seenCount = this.#count();
      const startMs = clock.monotonicMs();
      await this.#save(signal);
      const restMs = Math.max(SHORTEST_REST_MS, RESTS * (clock.monotonicMs() - startMs));
      await clock.sleep(restMs, this.#resting.signal).catch(() => {});
    }
    this.#work = null;
  }

  async #save(signal: AbortSignal | undefined): Promise<void> {
    const { dir, clock, isLocked } = this.#options;
    const look = async () => {
      for (const batch of this.#states) if (!batch.isDone) await this.#saveBatch(batch, signal);
    };
    try {
      if (isLocked) await look();
      else {
        // Another command may have worked there since.
        this.#run = null;
        await withRunLock(dir, { clock, signal, patienceMs: 0 }, look);
      }
    } catch (error) {
      if (signal?.aborted === true) return;
      if (!(error instanceof ImgbatchError)) throw error;
      // The end of the run fetches what is missing, and reports what is wrong.
      if (error.code !== "DIRECTORY_IN_USE") this.#isOff = !mayPass(error);
    }
  }

  async #saveBatch(batch: Batch, signal: AbortSignal | undefined): Promise<void> {
    const { dir, state, onSaved } = this.#options;
    this.#run ??= await this.#begin();
    const { lines, input, unclear, pathFor } = this.#run;
    if (this.#isOff) return;
    const entry = state.batches.find(({ id }) => id === batch.id);
    if (entry !== undefined) recordBatch(entry, batch);
    const superseded = supersededIn(state, entry?.round ?? 0);
    const isHere = (id: string) => (lines.get(id)?.files.length ?? 0) > 0;
    const isWanted = (id: string) => !superseded.has(id) && !unclear.has(id) && !isHere(id);
    for (;;) {
      const options = { ...this.#options, signal, keepZip: false, isForgiving: true };
      // Earlier pictures stay until the end, and these images have none here.
      const wanted = { entry, gone: null, isWanted, earlier: [], pathFor, replace: async () => {} };
      const found = (await collectBatch(options, batch, wanted)).lines.filter(
        ({ files }) => files.length > 0,
      );
      if (found.length === 0) return;
      for (const line of found) {
        lines.set(line.custom_id, line);
        this.#saved.add(line.custom_id);
      }
      const inOrder = inputOrder(input, lines);
      await writeResults(dir, inOrder, input);
      onSaved(inOrder, input);
      if (found.length < MOST_AT_ONCE || this.#resting.signal.aborted) return;
    }
  }

  async #begin(): Promise<EarlyRun> {
    const { dir, state, reporter } = this.#options;
    await commitPendingInput(dir, state);
    const earlier = await setAside(dir, await readResults(dir), isSupersededIn(state), reporter);
    const input = await readRunInput(dir);
    const own = new Set(state.batches.map(({ id }) => id));
    // The end of the run moves the images of another run away. Until then, nothing takes their names.
    this.#isOff = input.damage !== null || earlier.some(({ batch_id: id = "" }) => !own.has(id));
    const batches = state.batches.flatMap(({ id }) => (id === null ? [] : [{ id }]));
    const lines = new Map(earlier.map((line) => [line.custom_id, line]));
    const nameOf = (id: string) =>
      foldFileName(imageFileName(imageStem(id, state.names ?? "id", input.get(id)), 0, "image/png"));
    const named = groupBy(input.keys(), nameOf);
    const unclear = new Set([...named.values()].filter((ids) => ids.length > 1).flat());
    return { lines, input, unclear, pathFor: pathsOf(state, batches, earlier, input).pathFor };
  }
}

/** Returns a line as its files came from the service: a converted file that is damaged is to be made from them again. */
async function asFetched(dir: string, line: ResultLine): Promise<ResultLine> {
  const files: ResultFile[] = [];
  for (const file of line.files) {
    const { original } = file;
    const isWhole = original === undefined || (await isIntact(dir, file));
    files.push(isWhole ? file : { ...file, ...original });
  }
  return { ...line, files };
}

/** Returns the error for the results of an image that the service has and that could not be fetched. */
function undelivered({ code, message, requestId }: ImgbatchError): ResultLine["error"] {
  const isOurs = code === "VERIFY_FAILED" || code === "NETWORK" || code === "BAD_RESPONSE";
  const facts = requestId === undefined ? {} : { request_id: requestId };
  return { code, message, source: isOurs ? CLIENT : "service", ...facts };
}

/**
 * Removes images of an earlier run that this run replaced. An image stays when it was changed since, when its replacement
 * could not be fetched, or when these results do not mention it. One whose item failed after it was saved early goes to
 * `versions/`.
 */
async function removeSuperseded(
  dir: string,
  earlier: readonly ResultLine[],
  lines: readonly ResultLine[],
): Promise<void> {
  const current = new Set(lines.flatMap((line) => line.files.map((file) => file.path)));
  const decided = new Set(
    lines.filter((line) => !stands(line, "unknown", "later", "lost")).map((line) => line.custom_id),
  );
  const failed = new Map(
    lines.filter(({ files }) => files.length === 0).map((line) => [line.custom_id, line]),
  );
  for (const { custom_id: id, batch_id, files } of earlier.filter((line) => decided.has(line.custom_id)))
    for (const file of files) {
      if (current.has(file.path) || !(await isIntact(dir, file))) continue;
      if (failed.get(id)?.batch_id === batch_id) await moveAway(dir, file.path);
      else await removeFile(join(dir, file.path));
    }
}

/** Throws `BAD_RESPONSE` when the service lists fewer items than the batch has. */
function requireWholeList(batch: Batch, items: readonly BatchItem[]): void {
  if (batch.itemCount === null || items.length >= batch.itemCount) return;
  const message = `The service lists ${items.length} of the ${batch.itemCount} items of ${batch.id}.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/** Throws `BAD_RESPONSE` when requested images are in no batch of the run: these are not its batches. */
export function requireAskedFor(ids: readonly string[], lines: readonly ResultLine[]): void {
  const absent = absentIds(ids, lines);
  if (absent.length === 0) return;
  const message = `The service's batches are not what was asked for: ${absent.length} of ${ids.length} images are in none of them, ${JSON.stringify(absent[0])} among them.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/**
 * Returns the requested images without a line. A service may number the images of an item in another way than `_01`, `_02`,
 * so the beginning of the id decides.
 */
function absentIds(ids: readonly string[], lines: readonly ResultLine[]): string[] {
  const asked = new Set(ids);
  const listed = new Set(lines.map((line) => line.custom_id));
  const others = [...listed].filter((id) => !asked.has(id)).sort();
  return ids.filter((id) => {
    if (listed.has(id)) return false;
    const stem = id.replace(/_\d+$/, "");
    return firstFrom(others, stem)?.startsWith(stem) !== true;
  });
}

/**
 * Returns the lines of the images that have none, because the service does not know their batches. `ids` are all images, in
 * the order of the input. None where the service knows all batches.
 */
function lostLines(
  runState: RunState,
  ids: readonly string[],
  lines: readonly ResultLine[],
  unknown: ReadonlyMap<RunBatch, ImgbatchError>,
): ResultLine[] {
  const [first] = unknown;
  if (first === undefined) return [];
  const makers = new Map<string, RunBatch>();
  let at = 0;
  // After an update, the input does not tell which prompts the first batches had.
  for (const entry of runState.updates === undefined ? submittedBatches(runState) : []) {
    const end = at + (entry.asked_count ?? 0);
    for (const id of ids.slice(at, end)) makers.set(id, entry);
    at = end;
  }
  for (const entry of runState.batches) for (const id of entry.images ?? []) makers.set(id, entry);
  return absentIds(ids, lines).map((custom_id) => {
    const own = makers.get(custom_id);
    const reason = own && unknown.get(own);
    const [entry, { code, message }] = own === undefined || reason === undefined ? first : [own, reason];
    const error = { code, message, source: CLIENT };
    return { custom_id, status: "pending", batch_id: entry.id ?? "", files: [], error };
  });
}

/** Returns why no image of a batch can be fetched; null if they can. */
function goneOf({ id, status }: Batch, unknown: ImgbatchError | undefined): ImgbatchError | null {
  if (unknown !== undefined || status !== "output_deleted") return unknown ?? null;
  return new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${id} were deleted.`);
}

/** Returns the first text of a sorted list that is not before `text`. If any text begins with `text`, this one does. */
function firstFrom(sorted: readonly string[], text: string): string | undefined {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? "") < text) low = middle + 1;
    else high = middle;
  }
  return sorted[low];
}

/**
 * Returns why an item of an ended batch has no image; null when it has one. An item without an outcome has failed only if
 * its batch failed. In a completed batch the service is late, and its image must not be paid for again.
 */
function errorOf(item: BatchItem, batch: Batch): ResultLine["error"] | null {
  const { status } = item;
  if (hasImages(item)) return null;
  if (status === "failed") return item.error;
  if (item.error !== null && status !== "pending" && status !== "success") return item.error;
  const without = status === "success" ? " and lists no image of it" : "";
  const message = `The batch has ended, but the service calls this item ${JSON.stringify(status)}${without}.`;
  if (batch.status === "failed" || batch.status === "cancelled")
    return { code: "NO_OUTCOME", message, source: CLIENT };
  const code: ErrorCode =
    batch.status === "output_deleted" ? "BATCH_IMAGE_OUTPUT_DELETED" : "BATCH_IMAGE_NOT_READY";
  return { code, message, source: CLIENT };
}
