import { type Batch, readBatch } from "../../client/batch.ts";
import { getBatch } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Http } from "../../http/http.ts";
import { isUnsent, makerOf } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import { otherMaker, type RunService } from "../directory/service-identity.ts";

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
  const { model, task_name } = request ?? {};
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
export function isUnsentHere(runState: RunState, entry: RunBatch, service: RunService): boolean {
  return isUnsent(entry) && otherMaker(makerOf(runState, entry), service) === null;
}

/** Whether the request of a batch was sent, or was about to be sent, to another service or with another key. */
export function isUnsentElsewhere(runState: RunState, entry: RunBatch, service: RunService): boolean {
  return isUnsent(entry) && otherMaker(makerOf(runState, entry), service) !== null;
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
    if (entry.id === null ? isElsewhere(runState, entry, service) : unknown.has(entry.id))
      found.set(entry, whyUnknown(runState, entry, service));
  return found;
}

function isElsewhere(runState: RunState, entry: RunBatch, service: RunService): boolean {
  return entry.state === "left" || isUnsentElsewhere(runState, entry, service);
}

function whyUnknown(runState: RunState, entry: RunBatch, service: RunService): ImgbatchError {
  const { id, index, status } = entry;
  const other = otherMaker(makerOf(runState, entry), service);
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
