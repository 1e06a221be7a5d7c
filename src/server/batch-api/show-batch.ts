import type { BatchObject } from "../../contract/batch-api/batches.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { batchView } from "./batch-view.ts";

/** Returns a batch as the API shows it, with why it waits and its jobs as they are now. */
export async function showBatch(
  deps: Pick<ApiDeps, "waitingOf" | "jobsOf">,
  batch: BatchRecord,
  queuedBehind: number | null = null,
): Promise<BatchObject> {
  return batchView(batch, deps.waitingOf(batch), await deps.jobsOf(batch), queuedBehind);
}
