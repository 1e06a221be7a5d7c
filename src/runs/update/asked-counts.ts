import type { Batch, BatchItem } from "../../client/batch.ts";
import { listItems } from "../../client/batches.ts";
import type { Http } from "../../http/http.ts";
import { isUpdate, supersededIn } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import { recordedItems } from "../outcome/recorded.ts";
import { retriedId } from "../retry/retried-id.ts";

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
  return [...supersededIn(state, round), ...retries.flatMap(({ retried = [] }) => retried)];
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
  const { readResults } = await import("../directory/results.ts");
  return recordedItems(await readResults(dir), batchId, round > 0);
}
