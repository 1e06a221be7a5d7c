import type { BlobReader, BlobStore } from "../ports/blob-store.ts";
import { type CheckedImage, checkedBytes } from "./checked-bytes.ts";
import { readAhead } from "./read-ahead.ts";

/** A part of a document whose size is known before: text, bytes, or a stored image, as it is or as Base64. */
export type Piece = string | Buffer | (CheckedImage & { isBase64: boolean });

/** Fits into the cache of a processor core, and is large enough that the number of reads does not count. */
const MEMORY_BYTES = 256 * 1024;

/** Returns the size of a piece in the document, in bytes. */
export function pieceBytes(piece: Piece): number {
  if (typeof piece === "string" || Buffer.isBuffer(piece)) return Buffer.byteLength(piece);
  return piece.isBase64 ? 4 * Math.ceil(piece.sizeBytes / 3) : piece.sizeBytes;
}

/**
 * Yields bytes `start` to `end` (inclusive) of a document. Images before `start` and behind `end` are not read, and no
 * other one is sent to its end unless it is intact (see `checkedBytes`). Yielded bytes are valid until the next ones are
 * asked for. Throws `BATCH_IMAGE_RESULT_MISSING` at an image that is missing or damaged.
 */
export async function* pieceStream(
  blobs: Pick<BlobStore, "reader">,
  pieces: readonly Piece[],
  range: { start: number; end: number },
): AsyncGenerator<Buffer> {
  const readers = readAhead(imagesOf(pieces, range), {
    sizeOf: (image) => image.sizeBytes,
    read: (image) => blobs.reader(image.blobKey),
    drop: (reader) => reader?.close(),
  });
  let memory: Buffer | undefined;
  try {
    for (const { piece, from, to } of partsOf(pieces, range)) {
      if (typeof piece === "string") yield Buffer.from(piece).subarray(from, to);
      else if (Buffer.isBuffer(piece)) yield piece.subarray(from, to);
      else {
        memory ??= Buffer.allocUnsafeSlow(MEMORY_BYTES);
        const { value: reader = null } = await readers.next();
        const encode = piece.isBase64 ? base64Bytes : checkedBytes;
        yield* encode(reader, piece, { from, to, memory });
      }
    }
  } finally {
    await readers.return(null);
  }
}

/** Yields the pieces of which bytes `start` to `end` of the document are made, and the part of each (`to` is exclusive). */
function* partsOf(pieces: readonly Piece[], { start, end }: { start: number; end: number }) {
  let position = 0;
  for (const piece of pieces) {
    if (position > end) return;
    const size = pieceBytes(piece);
    const from = Math.max(0, start - position);
    const to = Math.min(size, end + 1 - position);
    position += size;
    if (from < to) yield { piece, from, to };
  }
}

function* imagesOf(pieces: readonly Piece[], range: { start: number; end: number }): Generator<CheckedImage> {
  for (const { piece } of partsOf(pieces, range)) {
    if (typeof piece !== "string" && !Buffer.isBuffer(piece)) yield piece;
  }
}

/** Yields characters `from` to `to` (exclusive) of the Base64 of a stored image. */
async function* base64Bytes(
  file: BlobReader | null,
  image: CheckedImage,
  { from, to, memory }: { from: number; to: number; memory: Buffer },
): AsyncGenerator<Buffer> {
  // Four characters stand for three bytes.
  const start = Math.floor(from / 4) * 3;
  const end = Math.min(image.sizeBytes, Math.ceil(to / 4) * 3);
  let skip = from % 4;
  let left = to - from;
  let rest = Buffer.alloc(0);
  const encode = (bytes: Buffer) => {
    const text = Buffer.from(bytes.toString("base64"), "latin1").subarray(skip, skip + left);
    skip = 0;
    left -= text.length;
    return text;
  };
  for await (const chunk of checkedBytes(file, image, { from: start, to: end, memory })) {
    const bytes = Buffer.concat([rest, chunk]);
    const whole = bytes.length - (bytes.length % 3);
    rest = bytes.subarray(whole);
    if (whole > 0) yield encode(bytes.subarray(0, whole));
  }
  if (rest.length > 0) yield encode(rest);
}
