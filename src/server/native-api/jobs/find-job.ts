import { ImgbatchError } from "../../../contract/errors.ts";
import { type BatchStatus, isTerminal } from "../../../contract/statuses.ts";
import type { Stores } from "../../../domain/ports/stores.ts";
import type { BatchRecord } from "../../../domain/records.ts";
import { batchOfJob } from "./job-id.ts";

/** Returns the batch of a job that this key made with this API. Throws the same `JOB_NOT_FOUND` for all others. */
export async function findJob(stores: Stores, keyId: string, id: unknown): Promise<BatchRecord> {
  const batch = await jobBatch(stores, keyId, batchOfJob(String(id)));
  if (batch !== null) return batch;
  throw new ImgbatchError("JOB_NOT_FOUND");
}

/** The same by the id of the batch; null for all others. */
export async function jobBatch(
  { read }: Stores,
  keyId: string,
  batchId: string,
): Promise<BatchRecord | null> {
  const batch = await read.batches.byId(batchId);
  const isOwn = batch?.apiKeyId === keyId && batch.source === "native" && batch.recordDeletedAtMs === null;
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
