import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

/**
 * The bytes of a stored image, compared with their hash. Throws `BATCH_IMAGE_RESULT_MISSING` when they are not those.
 */
export async function readIntact(blobs: BlobStore, output: OutputRecord): Promise<Buffer> {
  const bytes = await blobs.read(output.blobKey);
  if (!isIntact(output, bytes)) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
  return bytes;
}

/** Whether the bytes that were read are there, and are those that the row describes. */
export function isIntact(output: OutputRecord, bytes: Buffer | null): bytes is Buffer {
  return bytes !== null && bytes.length === output.sizeBytes && sha256Hex(bytes) === output.sha256;
}
