import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Batch, BatchItem } from "../client/batch.ts";
import { listItems } from "../client/batches.ts";
import { saving } from "../client/file-errors.ts";
import { errorEntry, ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { errorOf, goneOf, lostLines, requireAskedFor, requireWholeList } from "./check-outcome.ts";
import { commitPendingInput, removePassingZips } from "./directory/claim.ts";
import { readRunInput } from "./directory/input.ts";
import { createDiskNames, type DiskNames, imageStem } from "./directory/names.ts";
import { type ResultLine, writeResults } from "./directory/results.ts";
import { isIntact, type ResultFile } from "./directory/run-files.ts";
import { recordBatch, retriedId, supersededIn, writeRunState } from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import type { RunService } from "./directory/service-identity.ts";
import { setAside, setAsideStray } from "./directory/set-aside.ts";
import { type FetchJob, scopeOf } from "./fetch/fetch-by-content.ts";
import { collectWithoutFetching, type FetchedImages, fetchImages } from "./fetch/fetch-images.ts";
import type { RunReporter } from "./reporter.ts";
import { recordedItems, unknownBatches } from "./run-batches.ts";
import { isFailed, isMissing, isUnknownHere, standingOf, undelivered } from "./standing.ts";

interface CollectOptions {
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
  /** Why the service does not know a batch of the run, by its id. */
  unknown: ReadonlyMap<string | null, ImgbatchError>;
}

/**
 * Brings the images of ended batches into the directory: fetches missing and damaged ones, verifies, and writes the
 * results. When single images cannot be fetched, their lines give the reason (see `isMissing`). An error of a whole batch
 * does not stop the others; unless `isForgiving`, the first such error is thrown at the end, and the earlier results stay.
 * An error of the disk, the key or the account ends everything at once.
 */
export async function collectRun(options: CollectOptions): Promise<RunOutcome> {
  const { dir, state: runState, batches } = options;
  await commitPendingInput(dir, runState);
  const earlier = await setAside(dir, runState);
  const input = await readRunInput(dir);
  const names = keepNames(earlier, batches);
  const stemOf = (id: string) => imageStem(id, runState.names ?? "id", input.get(id));
  const lines: ResultLine[] = [];
  const errors: unknown[] = [];
  let fetchedCount = 0;
  const entries = new Map(runState.batches.map((entry) => [entry.id, entry]));
  const roundOf = (batch: Batch) => entries.get(batch.id)?.round ?? 0;
  const unknown = unknownBatches(runState, batches, options.service);
  // The last attempt at an image counts, so earlier attempts are not fetched any more.
  for (const batch of batches.toSorted((a, b) => roundOf(b) - roundOf(a))) {
    const entry = entries.get(batch.id);
    if (entry !== undefined) recordBatch(entry, batch);
    try {
      const superseded = supersededIn(runState, roundOf(batch));
      const found = await collectBatch(options, batch, {
        entry,
        gone: goneOf(batch, entry && unknown.get(entry)),
        superseded,
        earlier,
        names,
        stemOf,
        later: lines,
      });
      for (const line of found.lines) lines.push(line);
      fetchedCount += found.fetchedCount;
      if (entry !== undefined) noteMissing(entry, found.lines);
    } catch (error) {
      if (scopeOf(error, options.signal) === "run") throw error;
      errors.push(error);
    }
  }
  await writeRunState(dir, runState);
  if (errors.length > 0) throw errors[0];
  const isComplete = runState.batches.every(
    ({ id, state }) => state === "left" || batches.some((batch) => batch.id === id),
  );
  if (input.damage !== null) options.reporter.note(`${input.damage}: what it held is not known any more`);
  else {
    for (const line of lostLines(runState, [...input.keys()], lines, unknown)) lines.push(line);
    if (isComplete) requireAskedFor([...input.keys()], lines);
  }
  sortAsIn([...input.keys()], lines);
  const last = lastAttempts(lines);
  const { hasRetry } = await writeResults(dir, last, input, isFailed);
  const failedAt = last.filter(isFailed).flatMap(({ custom_id: id }) => input.get(id)?.source ?? []);
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
  return { dir, batches, deciding, lines: last, fetchedCount, hasRetry, failedAt, unknown: reasons };
}

/** Records how many images are missing, for another attempt. No count means that all are here or have failed. */
function noteMissing(entry: RunBatch, lines: readonly ResultLine[]): void {
  const count = lines.filter(isMissing).length;
  if (count > 0) entry.missing_count = count;
  else delete entry.missing_count;
}

/** Keeps the last attempt at each image, unless only an earlier one has the image. `lines` begins with the last attempts. */
function lastAttempts(lines: readonly ResultLine[]): ResultLine[] {
  const last = new Map<string, ResultLine>();
  for (const line of lines) {
    const later = last.get(line.custom_id);
    if (later === undefined || (standingOf(later) !== "here" && standingOf(line) === "here"))
      last.set(line.custom_id, line);
  }
  return [...last.values()];
}

/** Returns the ids of the images of a retry in the run, by the ids that were sent. */
function retriedIds(entry: RunBatch | undefined): ReadonlyMap<string, string> {
  return new Map(entry?.images?.map((id) => [retriedId(id), id]));
}

/** The facts of a run that collecting one batch needs. */
interface Collected {
  entry: RunBatch | undefined;
  gone: ImgbatchError | null;
  /** Images that the batch does not stand for any more. */
  superseded: ReadonlySet<string>;
  earlier: readonly ResultLine[];
  names: DiskNames;
  stemOf: (id: string) => string;
  /** The lines of the batches that retried images of this one. */
  later: readonly ResultLine[];
}

async function collectBatch(
  options: CollectOptions,
  batch: Batch,
  { entry, gone, superseded, earlier, names, stemOf, later }: Collected,
): Promise<{ lines: ResultLine[]; fetchedCount: number }> {
  const { dir, service, keepZip, signal, reporter } = options;
  const { http } = service;
  const ids = retriedIds(entry);
  const idOf = ({ customId }: BatchItem) => ids.get(customId) ?? customId;
  const { isUnknown } = batch;
  const listed = isUnknown
    ? recordedItems(earlier, batch.id, entry?.images !== undefined)
    : await listItems(http, batch.id, signal, entry?.asked_count);
  if (!isUnknown) requireWholeList(batch, listed);
  const made = new Set(later.filter((line) => standingOf(line) === "here").map((line) => line.custom_id));
  const wanted = listed.filter((item) => !made.has(idOf(item)) && !superseded.has(idOf(item)));
  const before = new Map(
    earlier.filter((line) => line.batch_id === batch.id).map((line) => [line.custom_id, line]),
  );
  const mine = new Map<string, ResultLine>();
  for (const item of wanted) {
    const line = before.get(idOf(item));
    if (line !== undefined) mine.set(item.customId, line);
  }
  const job: FetchJob = {
    http,
    dir,
    batch,
    gone,
    items: listed,
    wanted,
    ids,
    earlier: mine,
    names,
    stemOf,
    keepZip,
    signal,
    reporter,
  };
  const fetched = await fetchImages(job).catch((error) => {
    if (!isOfTheImages(error, job, service)) throw error;
    if (options.isForgiving !== true && error !== gone && error.code !== "BATCH_IMAGE_OUTPUT_DELETED")
      throw error;
    return collectWithoutFetching(job, error);
  });
  const lines = wanted.map((item) => toLine(item, idOf(item), batch, fetched));
  for (const { custom_id, status, error = null } of lines)
    reporter.event?.({ event: "item_ended", batch_id: batch.id, custom_id, status, error });
  return { lines, fetchedCount: fetched.fetchedCount };
}

/** Whether an error means that images cannot be fetched, now or ever. Errors of key, disk and command do not. */
function isOfTheImages(
  error: unknown,
  { signal, keepZip }: FetchJob,
  { isBorrowed }: RunService,
): error is ImgbatchError {
  if (signal?.aborted || !(error instanceof ImgbatchError)) return false;
  // The service of another command has ended. The work continues with another service.
  if (isBorrowed && error.code === "NETWORK") return false;
  const { exit } = errorEntry(error.code);
  return (exit === "temporary" && !keepZip) || exit === "gone";
}

function toLine(item: BatchItem, id: string, batch: Batch, { byItem, problems }: FetchedImages): ResultLine {
  const fetched = byItem.get(item.customId);
  const problem = problems.get(item.customId);
  const error = problem === undefined ? errorOf(item, batch) : undelivered(problem);
  return {
    custom_id: id,
    status: item.status,
    batch_id: batch.id,
    files: fetched?.files ?? [],
    ...(fetched === undefined ? {} : { verified: fetched.verified }),
    ...item.facts,
    ...(error == null ? {} : { error }),
  };
}

/** Sorts lines in input order, since services need not keep it. Lines of unknown ids come last. */
function sortAsIn(ids: readonly string[], lines: ResultLine[]): void {
  const order = new Map(ids.map((id, index) => [id, index]));
  const rank = (line: ResultLine) => order.get(line.custom_id) ?? ids.length;
  lines.sort((a, b) => rank(a) - rank(b));
}

/** Files of an earlier run keep their names, so that a repair changes nothing else. */
function keepNames(earlier: readonly ResultLine[], batches: readonly Batch[]): DiskNames {
  const names = createDiskNames();
  const ids = new Set(batches.map((batch) => batch.id));
  for (const line of earlier) {
    if (ids.has(line.batch_id)) for (const file of line.files) names.keep(file.path);
  }
  return names;
}

/**
 * Removes images of an earlier run that this run replaced. An image stays when it was changed since, when its replacement
 * could not be fetched, or when these results do not mention it.
 */
async function removeSuperseded(
  dir: string,
  earlier: readonly ResultLine[],
  lines: readonly ResultLine[],
): Promise<void> {
  const current = new Set(lines.flatMap((line) => line.files.map((file) => file.path)));
  const decided = new Set(lines.filter((line) => !isMissing(line)).map((line) => line.custom_id));
  const old: ResultFile[] = earlier
    .filter((line) => decided.has(line.custom_id))
    .flatMap((line) => line.files)
    .filter((file) => !current.has(file.path));
  for (const file of old) {
    if (!(await isIntact(dir, file))) continue;
    const path = join(dir, file.path);
    await saving(path, () => rm(path, { force: true }));
  }
}
