import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

/**
 * The bytes of a stored image, compared with their hash. Throws `BATCH_IMAGE_RESULT_MISSING` when they are not those.
 */
export async function readIntact(
  blobs: Pick<BlobStore, "read">,
  output: Pick<OutputRecord, "blobKey" | "sizeBytes" | "sha256">,
): Promise<Buffer> {
  const bytes = await intactBytes(blobs, output);
  if (bytes === null) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
  return bytes;
}

/** The same, or null when the image is missing or damaged. */
export async function intactBytes(
  blobs: Pick<BlobStore, "read">,
  { blobKey, sizeBytes, sha256 }: Pick<OutputRecord, "blobKey" | "sizeBytes" | "sha256">,
): Promise<Buffer | null> {
  const bytes = await blobs.read(blobKey, sizeBytes);
  return bytes?.length === sizeBytes && sha256Hex(bytes) === sha256 ? bytes : null;
}
