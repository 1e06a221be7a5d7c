import type { Manifest, ManifestError } from "../../contract/batch-api/manifest.ts";
import { IMAGE_EXTENSIONS } from "../../contract/images/image-types.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../records.ts";
import { assignEntryNames } from "./entry-names.ts";

/** An image of the ZIP: what is stored, under the name that it gets. */
export interface ZipImage {
  output: OutputRecord;
  customId: string;
  entryName: string;
}

/** The images of a batch with their names; a batch that never reached the naming of results is named here. */
export function nameImages(items: readonly ItemRecord[], outputs: readonly OutputRecord[]): ZipImage[] {
  const customIds = new Map(items.map((item) => [item.id, item.customId]));
  const images = outputs.map((output) => ({ output, customId: customIds.get(output.itemId) ?? "" }));
  const names = assignEntryNames(
    images.map(({ output, customId }) => ({
      customId,
      imageIndex: output.imageIndex,
      extension: IMAGE_EXTENSIONS[output.mimeType],
    })),
  );
  return images.map((image, i) => ({ ...image, entryName: image.output.entryName ?? names[i] ?? "" }));
}

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
export function buildErrors(items: readonly ItemRecord[]): ManifestError[] {
  return items.flatMap(({ customId, error }) => (error ? [{ custom_id: customId, ...error }] : []));
}
