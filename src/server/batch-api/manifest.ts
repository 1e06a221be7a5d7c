import type { Manifest, ManifestError } from "../../contract/batch-api.ts";
import type { ZipImage } from "../../domain/downloads/entry-names.ts";
import type { BatchRecord, ItemRecord } from "../../domain/records.ts";

/** `manifest.json` of a ZIP that holds these images. */
export function buildManifest(batch: BatchRecord, images: readonly ZipImage[]): Manifest {
  return {
    batch_id: batch.id,
    model: batch.model,
    task_name: batch.taskName,
    created_at: Math.floor(batch.createdAtMs / 1000),
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
export function buildErrors(items: readonly Pick<ItemRecord, "customId" | "error">[]): ManifestError[] {
  return items.flatMap(({ customId, error }) => {
    if (!error) return [];
    const { code, message, source } = error;
    return [{ custom_id: customId, code, message, source }];
  });
}
