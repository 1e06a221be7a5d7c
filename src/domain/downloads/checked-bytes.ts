import { crc32 } from "node:zlib";
import { ImgbatchError } from "../../contract/errors.ts";
import type { BlobReader, BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

export type CheckedImage = Pick<OutputRecord, "blobKey" | "sizeBytes" | "crc32">;

/**
 * Yields bytes `from` to `to` (exclusive) of a stored image, which is compared with its CRC-32 before: all of it, however
 * few bytes are asked for. A large image is read twice, so that it need not be in memory. What is read the second time is
 * compared again before its last bytes leave. Throws `BATCH_IMAGE_RESULT_MISSING` when the image is missing or damaged.
 *
 * The bytes lie in `memory`, and stay there only until the next ones are asked for.
 */
export async function* checkedBytes(
  blobs: Pick<BlobStore, "reader">,
  image: CheckedImage,
  { from, to, memory }: { from: number; to: number; memory: Buffer },
): AsyncGenerator<Buffer> {
  const file = await blobs.reader(image.blobKey);
  if (file === null) throw missing();
  try {
    if (image.sizeBytes <= memory.length) {
      for await (const bytes of read(file, memory, 0, image.sizeBytes)) {
        if (crc32(bytes) !== image.crc32) throw missing();
        yield bytes.subarray(from, to);
      }
      return;
    }
    const before = await checksum(read(file, memory, 0, from), 0);
    const upTo = await checksum(read(file, memory, from, to), before);
    if ((await checksum(read(file, memory, to, image.sizeBytes), upTo)) !== image.crc32) throw missing();
    let at = from;
    let sent = before;
    for await (const bytes of read(file, memory, from, to)) {
      at += bytes.length;
      sent = crc32(bytes, sent);
      if (at === to && sent !== upTo) throw missing();
      yield bytes;
    }
  } finally {
    await file.close();
  }
}

/** Yields bytes `from` to `to` (exclusive), in pieces that fill the memory. */
async function* read(file: BlobReader, memory: Buffer, from: number, to: number): AsyncGenerator<Buffer> {
  for (let at = from; at < to; at += memory.length) {
    const piece = memory.subarray(0, Math.min(memory.length, to - at));
    if ((await file.read(piece, at)) < piece.length) throw missing();
    yield piece;
  }
}

/** Returns the CRC-32 of everything up to the end of the pieces; `before`: that of everything before them. */
async function checksum(pieces: AsyncIterable<Buffer>, before: number): Promise<number> {
  let sum = before;
  for await (const bytes of pieces) sum = crc32(bytes, sum);
  return sum;
}

const missing = () => new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
