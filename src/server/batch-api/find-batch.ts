import { ImgbatchError } from "../../contract/errors.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord } from "../../domain/records.ts";

/** The caller's batch. Throws the same `BATCH_IMAGE_NOT_FOUND` for another key's batch, a deleted record and an unknown id. */
export async function findBatch(stores: Stores, caller: Caller, id: unknown): Promise<BatchRecord> {
  const batch = await stores.read.batches.byId(String(id));
  if (batch?.apiKeyId === caller.key.id && batch.recordDeletedAtMs === null) return batch;
  throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND");
}

export async function findItem(stores: Stores, batch: BatchRecord, customId: unknown): Promise<ItemRecord> {
  const item = await stores.read.items.byCustomId(batch.id, String(customId));
  if (item) return item;
  throw new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND");
}
