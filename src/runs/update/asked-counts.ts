import { listItems } from "../../client/batches/list-items.ts";
import type { Batch } from "../../client/wire/read-batch.ts";
import type { Http } from "../../http/http.ts";
import { supersededIn } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import { retriedId } from "../retry/retried-id.ts";

/**
 * Returns the batches of a run with counts of the images alone that the run still asks for. The items are listed only of
 * batches that an update has superseded in part.
 */
export async function askedCounts(
  http: Http,
  batches: readonly Batch[],
  state: RunState,
  signal: AbortSignal,
): Promise<Batch[]> {
  const counted: Batch[] = [];
  for (const batch of batches) {
    const entry = state.batches.find(({ id }) => id === batch.id);
    const superseded =
      entry === undefined ? new Set() : new Set([...supersededIn(state, entry.round)].map(retriedId));
    if (superseded.size === 0) {
      counted.push(batch);
      continue;
    }
    const items = (await listItems(http, batch.id, signal)).filter(
      ({ customId }) => !superseded.has(customId),
    );
    const successCount = items.filter(({ status }) => status === "success").length;
    const itemCount = items.length;
    counted.push({ ...batch, itemCount, successCount, failCount: itemCount - successCount });
  }
  return counted;
}
