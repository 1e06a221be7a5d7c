import { Readable } from "node:stream";
import type { Request, Response } from "express";
import type { ItemThumbnail } from "../../contract/batch-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import { PATHS } from "../../contract/routes.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { deleteImages } from "../../domain/batches/delete.ts";
import { openIntact, readIntact } from "../../domain/downloads/piece-stream.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { safeFileName } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import {
  conditions,
  downloadAnswers,
  headAnswers,
  matchesEtag,
  ranges,
  sendDownload,
  unchanged,
} from "../http/downloads.ts";
import { fieldError } from "../http/errors.ts";
import { goneSignal } from "../http/exchange.ts";
import { readQuery } from "../http/parameters.ts";
import type { Operation } from "../operation.ts";
import { findBatch } from "./batch-view.ts";
import { readItems } from "./items.ts";

async function findItem(stores: Stores, batch: BatchRecord, customId: unknown): Promise<ItemRecord> {
  const item = await stores.read.items.byCustomId(batch.id, String(customId));
  if (item) return item;
  throw new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND");
}

const IMAGES_DELETED = "The images of this item were deleted.";

/**
 * Returns the image that the path and `image_index` of a request name. Throws `BATCH_IMAGE_NOT_FOUND`,
 * `BATCH_IMAGE_ITEM_NOT_FOUND`, `BATCH_IMAGE_OUTPUT_DELETED`, `BATCH_IMAGE_NOT_READY` before the end of a batch that
 * `mustHaveEnded`, `BATCH_IMAGE_ITEM_FAILED` or `BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE`.
 */
async function findOutput(
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
  const imageIndex = readQuery(request, "ImageIndex");
  const output = outputs.find((o) => o.imageIndex === imageIndex);
  if (!output) {
    const range = `must be 0 to ${item.imageCount - 1}`;
    throw fieldError("BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE", "image_index", range);
  }
  return { batch, item, output };
}

/** Lets the browser of a caller keep what never changes. */
function keepInBrowser(response: Response): void {
  // As long as a session of the console, whose tab shows it again and again.
  response.setHeader("Cache-Control", "private, max-age=43200");
  // A browser must not show it to the next person who signs in.
  response.setHeader("Vary", "Authorization");
}

const images = ["image/png", "image/jpeg", "image/webp"];

const contentErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_ITEM_NOT_FOUND",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ITEM_FAILED",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE",
  "BATCH_IMAGE_RESULT_MISSING",
];

/** An image to send: as it is stored, or in another type. */
interface SentOutput {
  mimeType: ImageMimeType;
  sizeBytes: number;
  sha256: string;
  open: (range: { start: number; end: number }) => Promise<Readable>;
}

/** Returns an image in a type: converted if it is of another one, null for as it is. */
async function outputAs(
  { blobs, converter }: Pick<ApiDeps, "blobs" | "converter">,
  output: OutputRecord,
  mimeType: ImageMimeType | null,
): Promise<SentOutput> {
  if (mimeType === null || mimeType === output.mimeType)
    return { ...output, open: (range) => openIntact(blobs, output, range) };
  const bytes = await converter.convert(await readIntact(blobs, output), { mimeType, quality: null });
  const open = async ({ start, end }: { start: number; end: number }) =>
    Readable.from([bytes.subarray(start, end + 1)]);
  return { mimeType, sizeBytes: bytes.length, sha256: sha256Hex(bytes), open };
}

const getContent: Operation = {
  id: "getItemContent",
  method: "get",
  path: PATHS.content,
  summary: "One image of an ended batch; with `early`, of any batch",
  parameters: ["BatchId", "CustomId", "ImageIndex", "ImageType", "Early", ...ranges],
  answers: downloadAnswers("The image.", images),
  errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  handler: (deps) => async (request, response) => {
    const caller = callerOf(response);
    // The live view of `serve` shows images as they are made.
    const mustHaveEnded = caller.scope.keys === "own" && readQuery(request, "Early") !== "true";
    const { item, output } = await findOutput(deps.stores, request, response, { mustHaveEnded });
    const { imageIndex } = output;
    const name = imageIndex === 0 ? item.customId : `${item.customId}_${imageIndex + 1}`;
    const asked = readQuery(request, "ImageType") ?? null;
    const takeSlot = () => deps.slots.take(caller.key.id);
    // An image that is converted is in memory as a whole, also for its headers or a part of it.
    const leaveSlot = asked === null || asked === output.mimeType ? null : takeSlot();
    try {
      const { sizeBytes, sha256, mimeType, open } = await outputAs(deps, output, asked);
      const fileName = `${safeFileName(name)}.${IMAGE_EXTENSIONS[mimeType]}`;
      const download = { sizeBytes, etag: sha256, mimeType, fileName, open };
      await sendDownload(request, response, download, leaveSlot === null ? takeSlot : () => () => {});
    } finally {
      leaveSlot?.();
    }
  },
};

/** The images of items, small ones of them, and the images that items refer to. */
export const imageOperations: readonly Operation[] = [
  getContent,
  {
    ...getContent,
    id: "headItemContent",
    method: "head",
    summary: "Size, type and ETag of one image",
    parameters: ["BatchId", "CustomId", "ImageIndex", "ImageType", "Early", ...conditions],
    answers: headAnswers("the image"),
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  },
  {
    id: "deleteItemContent",
    method: "delete",
    path: PATHS.content,
    summary: "Delete the images of one item of an ended batch; the item and its payment stay",
    parameters: ["BatchId", "CustomId"],
    answers: { 204: { description: "The item has no images any more." } },
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_ITEM_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY",
      "BATCH_IMAGE_QUEUE_FAILED",
    ],
    handler: (deps) => async (request, response) => {
      const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
      const item = await findItem(deps.stores, batch, request.params.custom_id);
      await deleteImages(deps, batch.id, item, deps.clock.nowMs());
      response.status(204).end();
    },
  },
  {
    id: "getThumbnail",
    method: "get",
    path: PATHS.thumbnail,
    summary: "A small WebP of one image, also before the batch has ended",
    parameters: ["BatchId", "CustomId", "ThumbnailWidth", "ImageIndex", ...conditions],
    answers: {
      200: {
        description: "The small image.",
        bytes: ["image/webp"],
        headers: ["ContentLength", "ETag", "CacheControl", "NoSniff"],
      },
      304: unchanged,
    },
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    handler:
      ({ stores, thumbnails, thumbnailSlots }) =>
      async (request, response) => {
        const width = readQuery(request, "ThumbnailWidth");
        const { output } = await findOutput(stores, request, response, { mustHaveEnded: false });
        const etag = `"${output.sha256}-${width}"`;
        response.setHeader("ETag", etag);
        keepInBrowser(response);
        response.setHeader("X-Content-Type-Options", "nosniff");
        if (matchesEtag(request.get("if-none-match"), etag)) return void response.status(304).end();
        const gone = goneSignal(response);
        const leaveSlot = thumbnailSlots.take(callerOf(response).key.id);
        try {
          const bytes = await thumbnails.get(output, width === "256" ? 256 : 1024, gone);
          if (bytes === null) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
          response.setHeader("Content-Type", "image/webp");
          response.setHeader("Content-Length", bytes.length);
          response.end(bytes);
        } catch (error) {
          // The reader went away: no fault of the service.
          if (!gone.aborted) throw error;
        } finally {
          leaveSlot();
        }
      },
  },
  {
    id: "listThumbnails",
    method: "get",
    path: PATHS.thumbnails,
    summary: "Small WebPs of the images of many items, those that are made already",
    parameters: ["BatchId", "ThumbnailLimit", "Cursor"],
    answers: {
      200: { description: "A page of small images.", schema: "ThumbnailList", headers: ["CacheControl"] },
    },
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETED",
      "BATCH_IMAGE_INVALID_QUERY",
      "BATCH_IMAGE_DOWNLOAD_LIMITED",
    ],
    handler:
      ({ stores, thumbnails, thumbnailSlots }) =>
      async (request, response) => {
        const caller = callerOf(response);
        const batch = await findBatch(stores, caller, request.params.id);
        if (batch.status === "output_deleted") throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED");
        const leaveSlot = thumbnailSlots.take(caller.key.id);
        try {
          const limit = readQuery(request, "ThumbnailLimit");
          const { items, pageOf } = await readItems({ stores }, request, batch, { limit });
          const outputs = await stores.read.outputs.ofItems(items.map(({ id }) => id));
          const first = outputs.filter(({ imageIndex }) => imageIndex === 0);
          const small = new Map(
            await Promise.all(
              first.map(async (output) => [output.itemId, await thumbnails.find(output, 256)] as const),
            ),
          );
          const isWhole = isTerminal(batch.status) && ![...small.values()].includes(null);
          if (isWhole) keepInBrowser(response);
          else response.setHeader("Cache-Control", "no-store");
          response.json(
            pageOf(({ id, customId }): ItemThumbnail => {
              return { custom_id: customId, data: small.get(id)?.toString("base64") ?? null };
            }),
          );
        } finally {
          leaveSlot();
        }
      },
  },
  {
    id: "getReference",
    method: "get",
    path: PATHS.reference,
    summary: "A reference image of an item, as it was sent",
    parameters: ["BatchId", "CustomId", "ReferenceIndex", ...ranges],
    answers: downloadAnswers("The image.", images),
    errors: [
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_ITEM_NOT_FOUND",
      "BATCH_IMAGE_OUTPUT_DELETED",
      "BATCH_IMAGE_RESULT_MISSING",
      "BATCH_IMAGE_DOWNLOAD_LIMITED",
    ],
    handler:
      ({ stores, blobs, slots }) =>
      async (request, response) => {
        const caller = callerOf(response);
        const batch = await findBatch(stores, caller, request.params.id);
        const item = await findItem(stores, batch, request.params.custom_id);
        const index = Number(request.params.index);
        const found = (await stores.read.references.ofSources(batch.id, [item.sourceIndex]))[index];
        if (found?.blobKey == null || found.sha256 === null) {
          throw new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND", "The item has no such reference image here.");
        }
        if (batch.inputsPurgedAtMs !== null) {
          const message = "The reference images of this batch were deleted.";
          throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", message);
        }
        const { blobKey, sha256, mimeType } = found;
        const sizeBytes = await blobs.sizeOf(blobKey);
        if (sizeBytes === null) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
        const download = {
          sizeBytes,
          etag: sha256,
          mimeType,
          fileName: `${safeFileName(`${item.customId}_reference_${index + 1}`)}.${IMAGE_EXTENSIONS[mimeType]}`,
          open: (range: { start: number; end: number }) =>
            openIntact(blobs, { blobKey, sizeBytes, sha256 }, range),
        };
        await sendDownload(request, response, download, () => slots.take(caller.key.id));
      },
  },
];
