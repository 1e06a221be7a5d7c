import { Readable } from "node:stream";
import type { Request, RequestHandler, Response } from "express";
import {
  BILLED_NOTE,
  type ItemExtra,
  type ItemObject,
  type ItemThumbnail,
  type ListEnvelope,
  PAID_TWICE_NOTE,
} from "../../contract/batch-api.ts";
import type { ConsoleBody } from "../../contract/console-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { PATHS, routes } from "../../contract/routes.ts";
import { type ItemError, type ItemStatus, isTerminal } from "../../contract/statuses.ts";
import { withUpstreamWords } from "../../contract/waiting.ts";
import { activeKey } from "../../domain/accounts.ts";
import { deleteImages } from "../../domain/batches/delete.ts";
import { askedOptions } from "../../domain/checked-content.ts";
import { openIntact, readIntact } from "../../domain/downloads/piece-stream.ts";
import { nameImages, planBatchZip, type ZipImage } from "../../domain/downloads/zip.ts";
import type { ListedItem, Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord, ReferenceRecord } from "../../domain/records.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { groupBy } from "../../kernel/json.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { safeFileName, truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { admit, bearerErrors, callerOf, requireBatchGroup } from "../http/authenticate.ts";
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
import { publicUrlOf } from "../http/host.ts";
import { callerAddress } from "../http/limits.ts";
import { invalidQuery, pagingBy, readQuery } from "../http/parameters.ts";
import type { Operation, Surface } from "../operation.ts";
import { findBatch } from "./batch-view.ts";

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

/** `manifest.json` of a ZIP that holds these images. A file name is the full name of its entry. */
function buildManifest(batch: BatchRecord, images: readonly ZipImage[]) {
  return {
    batch_id: batch.id,
    model: batch.model,
    task_name: batch.taskName,
    created_at: toSeconds(batch.createdAtMs),
    item_count: batch.itemCount,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    files: images.map(({ output, customId, entryName }) => ({
      custom_id: customId,
      filename: entryName,
      mime_type: output.mimeType,
      image_index: output.imageIndex,
      size: output.sizeBytes,
      sha256: output.sha256,
    })),
  };
}

/** `errors.json`: one entry per failed item, in request order. */
function buildErrors(items: readonly Pick<ItemRecord, "customId" | "error">[]) {
  return items.flatMap(({ customId, error }) => {
    if (!error) return [];
    const { code, message, source } = error;
    return [{ custom_id: customId, code, message, source }];
  });
}

function toJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

function refuseUnready(batch: BatchRecord): void {
  if (batch.status === "output_deleted") throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED");
  const hasNothing = batch.status !== "completed" && batch.successCount === 0;
  if (!isTerminal(batch.status) || hasNothing) throw new ImgbatchError("BATCH_IMAGE_NOT_READY");
}

function refuseTooMany(all: readonly ListedItem[], filter: string, maxItems: number): void {
  const count = all.filter((item) => filter === "all" || item.status === filter).length;
  if (count <= maxItems) return;
  const message = `The ZIP would hold ${count} items, max_items is ${maxItems}.`;
  throw new ImgbatchError("BATCH_IMAGE_ZIP_TOO_MANY_ITEMS", message, { param: "max_items" });
}

async function markDownloaded(deps: ApiDeps, batchId: string): Promise<void> {
  const downloadedAtMs = deps.clock.nowMs();
  await deps.stores.write((tx) => tx.batches.update(batchId, { downloadedAtMs }));
}

/** Accepts the ticket of the batch that the path names, in the query. A GET uses it up. */
function authenticateTicket(deps: ApiDeps): RequestHandler {
  const { stores, clock, secrets, failedAuth } = deps;
  return async (request, response, next) => {
    const ticket = readQuery(request, "Ticket");
    if (ticket === undefined) throw new ImgbatchError("API_KEY_REQUIRED", "The link lacks its ticket.");
    const { tickets } = secrets;
    const held = request.method === "HEAD" ? (await tickets.find(ticket))?.value : await tickets.take(ticket);
    if (!held || held.batchId !== request.params.id) {
      failedAuth.note(callerAddress(request));
      throw new ImgbatchError("INVALID_API_KEY", "This link has been used, or is older than a minute.");
    }
    admit(deps, response, await activeKey(stores.read, held.keyId, clock.nowMs()));
    next();
  };
}

const zipErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ZIP_TOO_MANY_ITEMS",
  "BATCH_IMAGE_DOWNLOAD_TOO_LARGE",
  "BATCH_IMAGE_RESULT_MISSING",
];

/** The download of a ZIP, which also a link with a ticket offers. */
const batchDownload: Operation = {
  id: "downloadBatch",
  method: "get",
  path: PATHS.download,
  summary: "Images, manifest and errors of an ended batch as one ZIP",
  parameters: ["BatchId", "ZipStatus", "MaxItems", ...ranges],
  answers: downloadAnswers("The ZIP; the same batch always gives the same bytes.", ["application/zip"]),
  errors: [...zipErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  handler: (deps) => async (request, response) => {
    const caller = callerOf(response);
    const batch = await findBatch(deps.stores, caller, request.params.id);
    const filter = readQuery(request, "ZipStatus");
    const { zipItems } = deps.limits;
    const maxItems = readQuery(request, "MaxItems") ?? zipItems;
    if (maxItems > zipItems) throw invalidQuery("max_items", `must be an integer from 1 to ${zipItems}`);
    refuseUnready(batch);
    const all = await deps.stores.read.items.listed(batch.id, { afterPosition: -1, limit: batch.itemCount });
    const outputs = await deps.stores.read.outputs.ofBatch(batch.id);
    refuseTooMany(all, filter, maxItems);
    const bytes = outputs.reduce((sum, output) => sum + output.sizeBytes, 0);
    if (filter !== "failed" && bytes > deps.limits.zipBytes) {
      throw new ImgbatchError("BATCH_IMAGE_DOWNLOAD_TOO_LARGE");
    }
    const images = filter === "failed" ? [] : nameImages(all, outputs);
    const texts = [
      { name: "manifest.json", text: toJson(buildManifest(batch, images)) },
      { name: "errors.json", text: toJson(buildErrors(all)) },
    ];
    const zip = await planBatchZip(deps.blobs, { images, texts, variant: filter });
    const wholeZip = {
      ...zip,
      mimeType: "application/zip",
      fileName: `${safeFileName(batch.taskName)}.zip`,
    };
    const isWholeSent = await sendDownload(request, response, wholeZip, () => deps.slots.take(caller.key.id));
    if (isWholeSent && filter !== "failed") await markDownloaded(deps, batch.id);
  },
};

/** The ZIP of a batch. */
export const zipOperations: readonly Operation[] = [
  batchDownload,
  {
    ...batchDownload,
    id: "headDownload",
    method: "head",
    summary: "Size and ETag of the ZIP",
    parameters: ["BatchId", "ZipStatus", "MaxItems", ...conditions],
    answers: headAnswers("the ZIP"),
    errors: zipErrors,
  },
  {
    id: "makeTicket",
    method: "post",
    path: PATHS.ticket,
    summary: "A link that downloads the ZIP without a key, once, within a minute",
    parameters: ["BatchId"],
    answers: { 200: { description: "The link.", schema: "Ticket" } },
    errors: ["BATCH_IMAGE_NOT_FOUND"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const { id: batchId } = await findBatch(deps.stores, caller, request.params.id);
      const { secret, expiresAtMs } = await deps.secrets.tickets.issue({ keyId: caller.key.id, batchId });
      const url = `${publicUrlOf(deps, request)}${routes.ticketDownload(batchId)}?ticket=${secret}`;
      const view: ConsoleBody<"Ticket"> = {
        object: "download.ticket",
        url,
        expires_at: toSeconds(expiresAtMs),
      };
      response.setHeader("Cache-Control", "no-store");
      response.json(view);
    },
  },
];

/** Downloads by a link that a browser follows without a key. */
export const ticketDownloads: Surface = {
  tag: "console",
  vendor: null,
  prefix: "/v1/downloads",
  operations: [
    {
      ...batchDownload,
      id: "downloadByTicket",
      path: PATHS.ticketDownload,
      summary: "The ZIP of a batch, by the link of a ticket",
      parameters: [...(batchDownload.parameters ?? []), "Ticket"],
      errors: [...(batchDownload.errors ?? []), ...bearerErrors],
      guards: [authenticateTicket, requireBatchGroup],
    },
  ],
  credential: null,
};

const paging = pagingBy("i", ["position"]);

/**
 * Reads the page of at most `limit` items that `cursor` of a query asks for. `pageOf` makes the answer of it. Throws
 * `BATCH_IMAGE_INVALID_QUERY`.
 */
async function readItems(
  { stores }: Pick<ApiDeps, "stores">,
  request: Request,
  batch: BatchRecord,
  { limit, ...filter }: { limit: number; status?: ItemStatus },
): Promise<{ items: ListedItem[]; pageOf: <View>(view: (item: ListedItem) => View) => ListEnvelope<View> }> {
  const { after, offset = 0 } = paging.start(request);
  const start = { afterPosition: after?.position ?? -1, offset };
  const found = await stores.read.items.listed(batch.id, { ...filter, ...start, limit: limit + 1 });
  return { items: found.slice(0, limit), pageOf: (view) => paging.page(found, limit, view) };
}

/** Reads what is wanted of all items at once. Returns a function that finds the details of one. */
async function readDetails(
  { stores }: Pick<ApiDeps, "stores">,
  batch: BatchRecord,
  items: readonly ListedItem[],
  wanted: ReadonlySet<ItemExtra>,
): Promise<(item: ListedItem) => ItemDetails> {
  const sources = [...new Set(items.map(({ sourceIndex }) => sourceIndex))];
  const references = wanted.has("references")
    ? await stores.read.references.ofSources(batch.id, sources)
    : [];
  const outputs = wanted.has("images") ? await stores.read.outputs.ofItems(items.map(({ id }) => id)) : [];
  const failed = items.filter(({ status }) => status === "failed").map(({ customId }) => customId);
  const retries = wanted.has("retries") ? await stores.read.items.retriesOf(batch, failed) : null;
  const referencesOf = groupBy(references, ({ sourceIndex }) => sourceIndex);
  const outputsOf = groupBy(outputs, ({ itemId }) => itemId);
  return ({ id, customId, prompt, sourceIndex }) => ({
    ...(wanted.has("prompt") && { prompt }),
    ...(wanted.has("references") && { references: referencesOf.get(sourceIndex) ?? [] }),
    ...(wanted.has("images") && { outputs: outputsOf.get(id) ?? [] }),
    ...(retries && { retriedIn: retries.get(customId) ?? null }),
  });
}

const microsOrNull = (micros: number | null) => (micros === null ? null : microsToNumber(micros));

/** Facts of an item that the list has when it is asked for them. */
interface ItemDetails {
  prompt?: string;
  references?: readonly ReferenceRecord[];
  outputs?: readonly OutputRecord[];
  retriedIn?: string | null;
}

function itemError({ code, message, source, said }: ItemError, isOwner: boolean): ItemObject["error"] {
  return { code, message: isOwner ? withUpstreamWords(message, said) : message, source };
}

/** How many requests for an item may be paid although no answer came. */
function lostRequests({ maybePaid, status }: Pick<ListedItem, "maybePaid" | "status">): number {
  const isFailed = status === "failed" ? 1 : 0;
  return maybePaid === "twice" ? 1 + isFailed : maybePaid === "once" ? isFailed : 0;
}

/** An item of a batch as the item list shows it. `isOwner`: with the upstream's own words about a failure. */
function itemView(
  item: ListedItem,
  { prompt, references, outputs, retriedIn }: ItemDetails,
  isOwner: boolean,
): ItemObject {
  const { priceMicroUsd } = item;
  const lost = lostRequests(item);
  return {
    custom_id: item.customId,
    status: item.status,
    prompt_preview: truncateCodePoints(item.prompt, FIXED_LIMITS.promptPreviewChars, "…"),
    mime_type: item.mimeType,
    file_extension: item.mimeType && IMAGE_EXTENSIONS[item.mimeType],
    image_count: item.imageCount,
    model_version: item.modelVersion,
    provider: item.status === "pending" ? null : item.provider,
    seed: item.seed,
    options: askedOptions(item.options),
    upstream_cost: microsOrNull(item.usage?.costMicroUsd ?? null),
    took_ms: item.usage?.tookMs ?? null,
    finished_at: item.finishedAtMs === null ? null : item.finishedAtMs / 1000,
    notes: [
      ...item.notes,
      ...(item.maybePaid === "twice" ? [PAID_TWICE_NOTE] : []),
      ...(item.maybePaid === "once" && item.status === "failed" ? [BILLED_NOTE] : []),
    ],
    error: item.error && itemError(item.error, isOwner),
    cost: item.status === "success" ? microsToNumber(priceMicroUsd) : null,
    ...(lost === 0 ? {} : { may_be_billed: microsToNumber(lost * priceMicroUsd) }),
    ...(prompt === undefined ? {} : { prompt }),
    ...(references && {
      references: references.map(({ referenceId: id, type, mimeType }) => ({
        id,
        type,
        mime_type: mimeType,
      })),
    }),
    ...(outputs && {
      images: outputs.map(({ mimeType, widthPx, heightPx, sizeBytes, sha256 }) => ({
        mime_type: mimeType,
        width: widthPx,
        height: heightPx,
        size: sizeBytes,
        sha256,
      })),
    }),
    ...(retriedIn === undefined ? {} : { retried_in: retriedIn }),
  };
}

export const listItems: Operation = {
  id: "listItems",
  method: "get",
  path: PATHS.items,
  summary: "Items of a batch, in request order",
  parameters: ["BatchId", "ItemStatus", "Include", "ItemLimit", "Cursor"],
  answers: { 200: { description: "A page of items.", schema: "ItemList" } },
  errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
  handler: (deps) => async (request, response) => {
    const caller = callerOf(response);
    const batch = await findBatch(deps.stores, caller, request.params.id);
    const status = readQuery(request, "ItemStatus");
    const filter = status === undefined || status === "all" ? {} : { status };
    const { items, pageOf } = await readItems(deps, request, batch, {
      limit: readQuery(request, "ItemLimit"),
      ...filter,
    });
    const detailsOf = await readDetails(deps, batch, items, new Set(readQuery(request, "Include")));
    response.json(pageOf((item) => itemView(item, detailsOf(item), caller.scope.isOwner)));
  },
};
