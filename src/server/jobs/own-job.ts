import { type BatchSource, type BatchStatus, isTerminal } from "../../contract/statuses.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";

/** Returns a batch that this key made with the API `source`; null for all others. */
export async function ownJob(
  { read }: Stores,
  keyId: string,
  source: BatchSource,
  batchId: string,
): Promise<BatchRecord | null> {
  const batch = await read.batches.byId(batchId);
  const isOwn = batch?.apiKeyId === keyId && batch.source === source && batch.recordDeletedAtMs === null;
  return isOwn ? batch : null;
}

/** Returns the status of a batch. If its outputs were deleted, returns the status that it ended in. */
export async function endedAs({ read }: Stores, { id, status }: BatchRecord): Promise<BatchStatus> {
  if (status !== "output_deleted") return status;
  const events = await read.batches.events(id);
  return events.find(({ to }) => to === "output_deleted")?.from ?? "completed";
}

/** Whether a batch has results to fetch. */
export function hasResults({ status, itemCount }: BatchRecord): boolean {
  return isTerminal(status) && status !== "output_deleted" && itemCount > 0;
}
