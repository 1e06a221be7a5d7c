import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { crc32 } from "node:zlib";
import { ImgbatchError } from "../../contract/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { OutputRecord } from "../records.ts";

type BlobReader = NonNullable<Awaited<ReturnType<BlobStore["reader"]>>>;
type CheckedImage = Pick<OutputRecord, "blobKey" | "sizeBytes" | "crc32">;

/**
 * Yields bytes `from` to `to` (exclusive) of a stored image in pieces of the size of `memory`, where each stays only until
 * the next one is asked for. All of the image is compared with its CRC-32, however few bytes are asked for: before the
 * first one when they are a part of it, which may be the rest of a broken download; else before the last piece, so that
 * nobody receives a damaged image to its end. Closes the reader. Throws `BATCH_IMAGE_RESULT_MISSING` when the image is
 * missing (null) or damaged.
 */
async function* checkedBytes(
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

/** How many are begun before they are needed, and how many bytes they may have together. */
const AHEAD = 4;
const AHEAD_BYTES = 16 * 1024 * 1024;

/**
 * Begins to read images before they are needed, for stores that are behind a network: up to four of at most 16 MiB
 * together, beside the one in use. Yields what `read` returns for each, in order. `drop` gets what was read and not
 * yielded when the caller leaves early.
 */
export async function* readAhead<T, R>(
  items: Iterable<T>,
  { sizeOf, read, drop }: { sizeOf(item: T): number; read(item: T): Promise<R>; drop?(result: R): unknown },
): AsyncGenerator<R> {
  const source = items[Symbol.iterator]();
  /** The first one is in use next. */
  const begun: { result: Promise<R>; sizeBytes: number }[] = [];
  let next = source.next();
  const begin = () => {
    for (; !next.done; next = source.next()) {
      const sizeBytes = sizeOf(next.value);
      const bytes = begun.slice(1).reduce((sum, one) => sum + one.sizeBytes, sizeBytes);
      if (begun.length > AHEAD || (begun.length > 0 && bytes > AHEAD_BYTES)) return;
      const result = read(next.value);
      result.catch(() => {});
      begun.push({ result, sizeBytes });
    }
  };
  try {
    for (;;) {
      begin();
      const first = begun.shift();
      if (first === undefined) return;
      yield await first.result;
    }
  } finally {
    for (const { result } of begun) result.then(drop).catch(() => {});
  }
}

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
  if (bytes === null) throw missing();
  return bytes;
}

/**
 * Opens bytes `start` to `end` (inclusive) of a stored image, after comparing all of it with its hash. A large one is read
 * twice, so that many downloads at once need little memory. Throws `BATCH_IMAGE_RESULT_MISSING` as `readIntact` does.
 */
export async function openIntact(
  blobs: Pick<BlobStore, "read" | "reader" | "sizeOf" | "open">,
  output: Pick<OutputRecord, "blobKey" | "sizeBytes" | "sha256">,
  { start, end }: { start: number; end: number },
): Promise<Readable> {
  if (output.sizeBytes <= WHOLE_BYTES)
    return Readable.from([(await readIntact(blobs, output)).subarray(start, end + 1)]);
  const bytes = (await isIntact(blobs, output)) ? await blobs.open(output.blobKey, { start, end }) : null;
  if (bytes === null) throw missing();
  return bytes;
}

/** As `readIntact`, or null when the image is missing or damaged. */
async function intactBytes(
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
