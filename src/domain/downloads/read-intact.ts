import { createHash } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

/** A larger image is never in memory as a whole where only its hash matters. */
const WHOLE_BYTES = 1024 * 1024;
const PIECE_BYTES = 256 * 1024;

/**
 * Returns the bytes of a stored image after comparing them with their hash. Throws `BATCH_IMAGE_RESULT_MISSING` when
 * the image is missing or damaged.
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

/** Whether a stored image has the bytes that its row describes. */
export async function isIntact(
  blobs: Pick<BlobStore, "read" | "reader" | "sizeOf">,
  output: Pick<OutputRecord, "blobKey" | "sizeBytes" | "sha256">,
): Promise<boolean> {
  const { blobKey, sizeBytes, sha256 } = output;
  if (sizeBytes <= WHOLE_BYTES) return (await intactBytes(blobs, output)) !== null;
  const file = (await blobs.sizeOf(blobKey)) === sizeBytes ? await blobs.reader(blobKey) : null;
  if (file === null) return false;
  try {
    const hash = createHash("sha256");
    const memory = Buffer.allocUnsafeSlow(PIECE_BYTES);
    for (let at = 0; at < sizeBytes; at += memory.length) {
      const piece = memory.subarray(0, Math.min(memory.length, sizeBytes - at));
      if ((await file.read(piece, at)) < piece.length) return false;
      hash.update(piece);
    }
    return hash.digest("hex") === sha256;
  } finally {
    await file.close();
  }
}
