import type { RequestHandler } from "express";
import type { ConsoleBody } from "../../contract/console-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS, routes } from "../../contract/routes.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { activeKey } from "../../domain/accounts.ts";
import { nameImages, planBatchZip, type ZipImage } from "../../domain/downloads/zip.ts";
import type { ListedItem } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord } from "../../domain/records.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { safeFileName } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { admit, bearerErrors, callerOf, requireBatchGroup } from "../http/authenticate.ts";
import { conditions, downloadAnswers, headAnswers, ranges, sendDownload } from "../http/downloads.ts";
import { publicUrlOf } from "../http/host.ts";
import { callerAddress } from "../http/limits.ts";
import { invalidQuery, readQuery } from "../http/parameters.ts";
import type { Operation, Surface } from "../operation.ts";
import { findBatch } from "./batch-view.ts";

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
