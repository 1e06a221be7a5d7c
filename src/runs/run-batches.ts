import { type Batch, type BatchItem, type ItemFacts, readBatch } from "../client/answers.ts";
import { getBatch, listItems } from "../client/batches.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { isTerminal } from "../contract/statuses.ts";
import type { Http } from "../http/http.ts";
import type { ResultLine } from "./directory/results.ts";
import { otherMaker, type RunService } from "./directory/run-service.ts";
import { isUnsent, isUpdate, retriedId, supersededIn } from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import { stands } from "./standing.ts";

/**
 * Gets a batch of a run. If the service does not know it, returns it as the run state does, marked as unknown: its images
 * that are here still count, and there is nothing to wait for.
 */
export async function findBatch(
  http: Http,
  entry: RunBatch,
  id: string,
  signal?: AbortSignal,
): Promise<Batch> {
  try {
    return (await getBatch(http, id, { signal })).batch;
  } catch (error) {
    const known = isUnknown(error) ? recordedBatch(entry) : null;
    if (known === null) throw error;
    return { ...known, isUnknown: true, isDone: true };
  }
}

/** Returns a batch as the run state knows it, with the request of the run if that is known; null without an id. */
export function recordedBatch(entry: RunBatch, request: RunState["request"] = null): Batch | null {
  const { id, status, item_count, success_count, fail_count } = entry;
  const { estimated_cost, actual_cost, play_money, parent_batch_id, created_at } = entry;
  const { model: usual, task_name } = request ?? {};
  const { model = usual } = entry;
  const costs = { estimated_cost, actual_cost, ...(play_money === undefined ? {} : { play_money }) };
  const facts = { item_count, success_count, fail_count, ...costs, parent_batch_id, created_at };
  return readBatch({ id, model, status, task_name, ...facts });
}

/** Whether the service itself says that it has no such batch. Any other 404 may come from something before it. */
function isUnknown(error: unknown): boolean {
  return (
    error instanceof ImgbatchError && (error.code === "BATCH_IMAGE_NOT_FOUND" || error.httpStatus === 410)
  );
}

/** Whether the request of a batch has to be sent to this service, or sent again to find its batch. */
export function isUnsentHere(entry: RunBatch, service: RunService): boolean {
  return isUnsent(entry) && otherMaker(entry, service) === null;
}

/** Whether the request of a batch was sent, or was about to be sent, to another service or with another key. */
export function isUnsentElsewhere(entry: RunBatch, service: RunService): boolean {
  return isUnsent(entry) && otherMaker(entry, service) !== null;
}

/**
 * Returns the batches of a run that the service does not know, each with the reason: `BATCH_IMAGE_OUTPUT_DELETED` if it has
 * deleted the record of an ended batch of its own, else `BATCH_IMAGE_NOT_FOUND`. `batches` are those that were asked for.
 */
export function unknownBatches(
  runState: RunState,
  batches: readonly Batch[],
  service: RunService,
): Map<RunBatch, ImgbatchError> {
  const unknown = new Set(batches.filter(({ isUnknown }) => isUnknown).map(({ id }) => id));
  const found = new Map<RunBatch, ImgbatchError>();
  for (const entry of runState.batches)
    if (entry.id === null ? isElsewhere(entry, service) : unknown.has(entry.id))
      found.set(entry, whyUnknown(entry, service));
  return found;
}

function isElsewhere(entry: RunBatch, service: RunService): boolean {
  return entry.state === "left" || isUnsentElsewhere(entry, service);
}

function whyUnknown(entry: RunBatch, service: RunService): ImgbatchError {
  const { id, index, status } = entry;
  const other = otherMaker(entry, service);
  if (other === null && isTerminal(status ?? ""))
    return new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The service has deleted ${id}.`);
  const { dataDirectory } = service;
  const lost =
    dataDirectory === undefined
      ? "the service has lost or deleted it"
      : `the data of the embedded service in ${dataDirectory} are new`;
  const message = `${id ?? `Batch ${index + 1}`} is not known here: ${other ?? lost}.`;
  return new ImgbatchError("BATCH_IMAGE_NOT_FOUND", message);
}

/** A run, and its directory. */
interface Run {
  dir: string;
  state: RunState;
}

/**
 * Returns batches with counts of the images alone that their runs still take from them: images that an update superseded,
 * and images that a retry made again, count with their last batch. The items are listed only of batches that have such
 * images.
 */
export async function askedCounts(
  http: Http,
  batches: readonly Batch[],
  runs: readonly Run[],
  signal: AbortSignal,
): Promise<Batch[]> {
  const counted: Batch[] = [];
  for (const batch of batches) {
    const run = runs.find(({ state }) => state.batches.some(({ id }) => id === batch.id));
    const entry = run?.state.batches.find(({ id }) => id === batch.id);
    const replaced = run === undefined || entry === undefined ? [] : replacedIn(run.state, entry);
    if (run === undefined || entry === undefined || replaced.length === 0) {
      counted.push(batch);
      continue;
    }
    const left = new Set([...replaced, ...replaced.map(retriedId)]);
    const items = (await itemsOf(http, run, entry, batch, signal)).filter(
      ({ customId }) => !left.has(customId),
    );
    const successCount = items.filter(({ status }) => status === "success").length;
    const itemCount = items.length;
    const failCount = batch.isDone
      ? itemCount - successCount
      : items.filter(({ status }) => status === "failed").length;
    counted.push({ ...batch, itemCount, successCount, failCount, hasCounts: true });
  }
  return counted;
}

function replacedIn(state: RunState, { id, round }: RunBatch): string[] {
  const again = state.batches.filter(
    (later) => later.id !== null && later.parent_batch_id === id && later.round > round,
  );
  const retries = again.filter((later) => !isUpdate(state, later.round));
  return [...supersededIn(state, round), ...retries.flatMap(({ images = [] }) => images)];
}

/** Reads the items of a batch that the service does not know from the results of the run. */
async function itemsOf(
  http: Http,
  { dir }: Run,
  { round }: RunBatch,
  { id: batchId, isUnknown }: Batch,
  signal: AbortSignal,
): Promise<BatchItem[]> {
  if (!isUnknown) return listItems(http, batchId, signal);
  // Reading the files of a run takes libraries that load slowly.
  const { readResults } = await import("./directory/results.ts");
  return recordedItems(await readResults(dir), batchId, round > 0);
}

/**
 * Returns the items of a batch as the results of an earlier command have them, when the service has no list of them. An item
 * that had no outcome then is left out.
 */
export function recordedItems(lines: readonly ResultLine[], batchId: string, isRetry: boolean): BatchItem[] {
  const hasEnded = (line: ResultLine) => line.status === "success" || stands(line, "failed", "refused");
  return lines
    .filter((line) => line.batch_id === batchId && hasEnded(line))
    .map((line) => toItem(line, isRetry));
}

/** Returns the facts of an item that its line has. */
export function factsOf(line: ResultLine): ItemFacts {
  const { provider, model_version, seed, upstream_cost, cost, may_be_billed, took_ms, notes, play_money } =
    line;
  const money = { upstream_cost, cost, may_be_billed };
  const facts = Object.entries({ provider, model_version, seed, ...money, took_ms, notes, play_money });
  return Object.fromEntries(facts.filter(([, value]) => value !== undefined));
}

function toItem(line: ResultLine, isRetry: boolean): BatchItem {
  const { custom_id, status, files, error } = line;
  const known = factsOf(line);
  const isMade = status === "success";
  const imageCount = isMade ? Math.max(1, files.length) : 0;
  return {
    customId: isRetry ? retriedId(custom_id) : custom_id,
    status,
    mimeType: files[0]?.mime_type ?? null,
    imageCount,
    promptPreview: null,
    error: isMade ? null : (error ?? null),
    facts: known,
    finishedAtMs: null,
    raw: { ...known, status, image_count: imageCount, ...(isMade || error === undefined ? {} : { error }) },
  };
}
