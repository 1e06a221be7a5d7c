import { crc32 } from "node:zlib";
import { ImgbatchError } from "../../contract/errors.ts";
import type { BlobReader } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

export type CheckedImage = Pick<OutputRecord, "blobKey" | "sizeBytes" | "crc32">;

/**
 * Yields bytes `from` to `to` (exclusive) of a stored image in pieces of the size of `memory`, where each stays only until
 * the next one is asked for. All of the image is compared with its CRC-32, however few bytes are asked for: before the
 * first one when they are a part of it, which may be the rest of a broken download; else before the last piece, so that
 * nobody receives a damaged image to its end. Closes the reader. Throws `BATCH_IMAGE_RESULT_MISSING` when the image is
 * missing (null) or damaged.
 */
export async function* checkedBytes(
  file: BlobReader | null,
  image: CheckedImage,
  { from, to, memory }: { from: number; to: number; memory: Buffer },
): AsyncGenerator<Buffer> {
  if (file === null) throw missing();
  try {
    let before = 0;
    let upTo = image.crc32;
    if (to - from < image.sizeBytes) {
      before = await checksum(read(file, memory, 0, from), 0);
      upTo = await checksum(read(file, memory, from, to), before);
      if ((await checksum(read(file, memory, to, image.sizeBytes), upTo)) !== image.crc32) throw missing();
    }
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
