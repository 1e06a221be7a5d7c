import type { BlobStore } from "../../domain/ports/blob-store.ts";

/** A part of a document: text, or a stored image as Base64. */
export type Piece = string | { blobKey: string; sizeBytes: number };

/** Returns the size of a piece in the document, in bytes. */
export function pieceBytes(piece: Piece): number {
  return typeof piece === "string" ? Buffer.byteLength(piece) : 4 * Math.ceil(piece.sizeBytes / 3);
}

/**
 * Yields bytes `start` to `end` (inclusive) of a document. Images before `start` are not read, and of the others only the
 * part that is needed, in small chunks. Rejects when a stored image is missing or has another size.
 */
export async function* pieceStream(
  blobs: Pick<BlobStore, "open">,
  pieces: Iterable<Piece>,
  range: { start: number; end: number },
): AsyncGenerator<Buffer> {
  let position = 0;
  for (const piece of pieces) {
    if (position > range.end) return;
    const size = pieceBytes(piece);
    const from = Math.max(0, range.start - position);
    const to = Math.min(size, range.end + 1 - position);
    position += size;
    if (from >= to) continue;
    if (typeof piece === "string") yield Buffer.from(piece).subarray(from, to);
    else yield* base64Stream(blobs, piece, from, to);
  }
}

/** Yields characters `from` to `to` (exclusive) of the Base64 of a stored image. */
async function* base64Stream(
  blobs: Pick<BlobStore, "open">,
  { blobKey, sizeBytes }: Exclude<Piece, string>,
  from: number,
  to: number,
): AsyncGenerator<Buffer> {
  // Four characters stand for three bytes.
  const start = Math.floor(from / 4) * 3;
  const end = Math.min(sizeBytes, Math.ceil(to / 4) * 3) - 1;
  const stream = await blobs.open(blobKey, { start, end });
  if (stream === null) throw new Error(`the image ${blobKey} is missing`);
  let skip = from % 4;
  let left = to - from;
  let rest = Buffer.alloc(0);
  const encode = (bytes: Buffer) => {
    const text = Buffer.from(bytes.toString("base64"), "latin1").subarray(skip, skip + left);
    skip = 0;
    left -= text.length;
    return text;
  };
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const bytes = Buffer.concat([rest, chunk]);
    const whole = bytes.length - (bytes.length % 3);
    rest = bytes.subarray(whole);
    if (whole > 0) yield encode(bytes.subarray(0, whole));
  }
  if (rest.length > 0) yield encode(rest);
  if (left > 0) throw new Error(`the image ${blobKey} is shorter than its record says`);
}
