import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import type { Stores } from "../../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../../../domain/records.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { queryText } from "../../query/query.ts";
import { findBatch, findItem } from "../find-batch.ts";

const IMAGES_DELETED = "The images of this item were deleted.";

/**
 * Returns the image that the path and `image_index` of a request name. Throws `BATCH_IMAGE_NOT_FOUND`,
 * `BATCH_IMAGE_ITEM_NOT_FOUND`, `BATCH_IMAGE_OUTPUT_DELETED`, `BATCH_IMAGE_NOT_READY` before the end of a batch that
 * `mustHaveEnded`, `BATCH_IMAGE_ITEM_FAILED` or `BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE`.
 */
export async function findOutput(
  stores: Stores,
  request: Request,
  response: Response,
  { mustHaveEnded }: { mustHaveEnded: boolean },
): Promise<{ batch: BatchRecord; item: ItemRecord; output: OutputRecord }> {
  const batch = await findBatch(stores, callerOf(response), request.params.id);
  const item = await findItem(stores, batch, request.params.custom_id);
  if (batch.status === "output_deleted") throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED");
  const isWaitedFor = mustHaveEnded || item.status === "pending";
  if (isWaitedFor && !isTerminal(batch.status)) throw new ImgbatchError("BATCH_IMAGE_NOT_READY");
  if (item.status !== "success") throw new ImgbatchError("BATCH_IMAGE_ITEM_FAILED");
  const outputs = await stores.read.outputs.ofItem(item.id);
  if (outputs.length === 0) throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", IMAGES_DELETED);
  const imageIndex = readImageIndex(request);
  const output = outputs.find((o) => o.imageIndex === imageIndex);
  if (!output) throw indexOutOfRange(item.imageCount);
  return { batch, item, output };
}

function readImageIndex(request: Request): number {
  const text = queryText(request, "image_index") ?? "0";
  if (!/^\d{1,9}$/.test(text)) throw indexOutOfRange(null);
  return Number(text);
}

function indexOutOfRange(imageCount: number | null): ImgbatchError {
  const range = imageCount === null ? "an integer from 0" : `0 to ${imageCount - 1}`;
  return new ImgbatchError("BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE", `image_index: must be ${range}`, {
    param: "image_index",
  });
}
