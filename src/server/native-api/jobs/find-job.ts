import { ImgbatchError } from "../../../contract/errors.ts";
import type { Stores } from "../../../domain/ports/stores.ts";
import type { BatchRecord } from "../../../domain/records.ts";
import { ownJob } from "../../jobs/own-job.ts";
import { batchOfJob } from "./job-id.ts";

/** Returns the batch of a job that this key made with this API. Throws the same `JOB_NOT_FOUND` for all others. */
export async function findJob(stores: Stores, keyId: string, id: unknown): Promise<BatchRecord> {
  const batch = await ownJob(stores, keyId, "native", batchOfJob(String(id)));
  if (batch !== null) return batch;
  throw new ImgbatchError("JOB_NOT_FOUND");
}
