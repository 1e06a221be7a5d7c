import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { nameImages } from "../../domain/downloads/entry-names.ts";
import { planBatchZip } from "../../domain/downloads/zip.ts";
import type { ListedItem } from "../../domain/ports/item-repository.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { safeFileName } from "../../kernel/files/file-names.ts";
import type { ApiDeps } from "../deps.ts";
import { sendDownload } from "../downloads/send-download.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { queryChoice, queryInteger } from "../query/query.ts";
import { findBatch } from "./find-batch.ts";
import { buildErrors, buildManifest } from "./manifest.ts";

/** `GET …/{id}/download`: the images of a batch, its manifest and its errors as one ZIP. */
export function download(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const batch = await findBatch(deps.stores, caller, request.params.id);
    const filter = queryChoice(request, "status", ["success", "failed", "all"]) ?? "success";
    const { zipItems } = deps.limits;
    const maxItems = queryInteger(request, "max_items", { fallback: zipItems, min: 1, max: zipItems });
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
  };
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
