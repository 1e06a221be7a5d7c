import { createInflate, constants as zlib } from "node:zlib";
import PQueue from "p-queue";
import { type ImageMimeType, sniffImageType } from "../contract/image-formats.ts";
import {
  chunkType,
  type ImageCost,
  measureImage,
  pngChunks,
  webpChunks,
} from "../contract/image-structure.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";
import { createYield } from "../kernel/pacing.ts";

/** libwebp writes at most 2600. A decoder keeps up to 20 kB for each, and a stream could have 65,536. */
const MAX_CODE_GROUPS = 4096;

const [ANMF, VP8L, ALPH] = [chunkType("ANMF"), chunkType("VP8L"), chunkType("ALPH")];
/** In front of the chunks of a file, and in front of those of a frame. */
const [FILE_HEADER_BYTES, FRAME_HEADER_BYTES] = [12, 16];
const PICTURE_HEADER_BYTES = 5;
/** A small frame takes 50 µs. */
const FRAMES_BETWEEN_PAUSES = 16;

type Size = Pick<ImageCost, "widthPx" | "heightPx">;

/**
 * Throws `InvalidImageError` when a lossless picture or alpha channel of a WebP has so many groups of prefix codes that
 * its decoder would take hundreds of megabytes for them; no header shows their number. Also throws it for damage before
 * the pixels. `canvas` is the size in the header of the file.
 */
async function checkCodeGroups(webp: Buffer, canvas: Size): Promise<void> {
  const yieldSometimes = createYield(FRAMES_BETWEEN_PAUSES);
  await checkPicture(webp, canvas);
  for (const { type, data } of webpChunks(webp)) {
    if (type !== ANMF) continue;
    if (data.length < FRAME_HEADER_BYTES) throw damaged();
    const size = { widthPx: data.readUIntLE(6, 3) + 1, heightPx: data.readUIntLE(9, 3) + 1 };
    if (isBeyond(size, canvas)) throw damaged();
    await checkPicture(data.subarray(FRAME_HEADER_BYTES - FILE_HEADER_BYTES), size);
    await yieldSometimes();
  }
}

async function checkPicture(chunks: Buffer, size: Size): Promise<void> {
  const seen = new Set<number>();
  for (const { type, data } of webpChunks(chunks)) {
    if (type !== VP8L && type !== ALPH) continue;
    // Each takes time, and no picture has two.
    if (seen.has(type)) throw damaged();
    seen.add(type);
    const groups = type === VP8L ? await groupsOfPicture(data, size) : await groupsOfAlpha(data, size);
    if (groups === null) throw damaged();
    if (groups <= MAX_CODE_GROUPS) continue;
    throw new InvalidImageError(
      `the WebP image has ${groups} groups of prefix codes; at most ${MAX_CODE_GROUPS} are allowed`,
    );
  }
}

/** Behind a signature come 14 bits each for width and height, a flag of alpha and three bits of version. */
async function groupsOfPicture(data: Buffer, limit: Size): Promise<number | null> {
  if (data.length < PICTURE_HEADER_BYTES) return null;
  const header = data.readUInt32LE(1);
  const size = { widthPx: (header & 0x3fff) + 1, heightPx: ((header >>> 14) & 0x3fff) + 1 };
  return isBeyond(size, limit) ? null : countCodeGroups(data.subarray(PICTURE_HEADER_BYTES), size);
}

/** The first two bits say whether the samples are packed; a packed channel has no header of its own. */
async function groupsOfAlpha(data: Buffer, size: Size): Promise<number | null> {
  return ((data[0] ?? 0) & 3) === 1 ? countCodeGroups(data.subarray(1), size) : 0;
}

function isBeyond(size: Size, limit: Size): boolean {
  return size.widthPx > limit.widthPx || size.heightPx > limit.heightPx;
}

function damaged(): InvalidImageError {
  return new InvalidImageError("the WebP image does not decode: its lossless data is damaged");
}

const PIXELS_BETWEEN_PAUSES = 16_384;

/** Raised by reads behind the end, and by codes that say nothing. */
class Damage extends Error {}

/**
 * Counts the groups of prefix codes in a lossless stream of WebP (RFC 9649, section 3), which starts at its transforms.
 * Decodes only the small images in front of the pixels, and lets others run meanwhile. Returns null for a damaged stream.
 */
async function countCodeGroups(
  stream: Buffer,
  { widthPx, heightPx }: Pick<ImageCost, "widthPx" | "heightPx">,
): Promise<number | null> {
  const bits = new Bits(stream);
  try {
    const coded = await skipTransforms(bits, widthPx, heightPx);
    readCacheBits(bits);
    if (bits.read(1) === 0) return 1;
    const tile = 2 ** (bits.read(3) + 2);
    const tiles = await readImage(bits, Math.ceil(coded / tile), Math.ceil(heightPx / tile));
    const groups = new Set<number>();
    for (const pixel of tiles) groups.add((pixel >>> 8) & 0xffff);
    return groups.size;
  } catch (error) {
    if (error instanceof Damage) return null;
    throw error;
  }
}

const [PREDICTOR, COLOR, INDEXING] = [0, 1, 3];

/** Returns the width of the coded pixels: with few colours, several of them are in one. Section 4.1 to 4.4. */
async function skipTransforms(bits: Bits, width: number, height: number): Promise<number> {
  let coded = width;
  const done = new Set<number>();
  while (bits.read(1) === 1) {
    const transform = bits.read(2);
    if (done.has(transform)) throw new Damage();
    done.add(transform);
    if (transform === PREDICTOR || transform === COLOR) {
      const block = 2 ** (bits.read(3) + 2);
      await readImage(bits, Math.ceil(coded / block), Math.ceil(height / block));
    } else if (transform === INDEXING) {
      const colors = bits.read(8) + 1;
      await readImage(bits, colors, 1);
      coded = Math.ceil(coded / (colors <= 2 ? 8 : colors <= 4 ? 4 : colors <= 16 ? 2 : 1));
    }
  }
  return coded;
}

function readCacheBits(bits: Bits): number {
  if (bits.read(1) === 0) return 0;
  const size = bits.read(4);
  if (size < 1 || size > 11) throw new Damage();
  return size;
}

const [LITERALS, LENGTHS, DISTANCES] = [256, 24, 40];

/** An image with one group of codes, as ARGB: section 5.2. */
async function readImage(bits: Bits, width: number, height: number): Promise<Uint32Array> {
  const cacheBits = readCacheBits(bits);
  const cache = new Uint32Array(2 ** cacheBits);
  const green = readCode(bits, LITERALS + LENGTHS + (cacheBits > 0 ? cache.length : 0));
  const [red, blue, alpha] = [readCode(bits, 256), readCode(bits, 256), readCode(bits, 256)];
  const distances = readCode(bits, DISTANCES);
  const pixels = new Uint32Array(width * height);
  let at = 0;
  const put = (pixel: number) => {
    pixels[at++] = pixel;
    if (cacheBits > 0) cache[Math.imul(0x1e35a7bd, pixel) >>> (32 - cacheBits)] = pixel;
  };
  for (let pauseAt = PIXELS_BETWEEN_PAUSES; at < pixels.length; ) {
    if (at >= pauseAt) {
      await new Promise((resume) => setImmediate(resume));
      pauseAt = at + PIXELS_BETWEEN_PAUSES;
    }
    const symbol = green.next(bits);
    if (symbol < LITERALS) {
      const [r, b] = [red.next(bits), blue.next(bits)];
      put(((alpha.next(bits) << 24) | (r << 16) | (symbol << 8) | b) >>> 0);
    } else if (symbol < LITERALS + LENGTHS) {
      const length = readNumber(bits, symbol - LITERALS);
      const distance = pixelsBack(readNumber(bits, distances.next(bits)), width);
      if (distance > at || length > pixels.length - at) throw new Damage();
      for (let left = length; left > 0; left--) put(pixels[at - distance] ?? 0);
    } else put(cache[symbol - LITERALS - LENGTHS] ?? 0);
  }
  return pixels;
}

/** A length or a distance code: a symbol for its magnitude, and its other bits behind it. */
function readNumber(bits: Bits, symbol: number): number {
  if (symbol < 4) return symbol + 1;
  const extra = (symbol - 2) >> 1;
  return ((2 + (symbol & 1)) << extra) + bits.read(extra) + 1;
}

/** The places of the pixels around a pixel, nearest first, as rows above it and columns to its left. */
const NEIGHBOURS = Array.from({ length: 8 }, (_, up) =>
  Array.from({ length: 16 }, (_, i) => ({ up, left: 8 - i })),
)
  .flat()
  .filter(({ up, left }) => up > 0 || left > 0)
  .sort(
    (a, b) =>
      a.up ** 2 + a.left ** 2 - b.up ** 2 - b.left ** 2 ||
      Math.abs(a.left) - Math.abs(b.left) ||
      b.left - a.left,
  );

function pixelsBack(code: number, width: number): number {
  const near = NEIGHBOURS[code - 1];
  return near === undefined ? code - NEIGHBOURS.length : Math.max(1, near.up * width + near.left);
}

/** The order in which the lengths of the code for lengths are written. */
const LENGTH_ORDER = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const [REPEAT, FEW_ZEROS] = [16, 17];

/** Reads the lengths of a prefix code: section 6.2.1. */
function readCode(bits: Bits, alphabet: number): PrefixCode {
  const lengths = new Uint8Array(alphabet);
  if (bits.read(1) === 1) {
    const two = bits.read(1) === 1;
    lengths[bits.read(bits.read(1) === 1 ? 8 : 1)] = 1;
    if (two) lengths[bits.read(8)] = 1;
    return new PrefixCode(lengths);
  }
  const ofLengths = new Uint8Array(LENGTH_ORDER.length);
  const count = 4 + bits.read(4);
  for (const symbol of LENGTH_ORDER.slice(0, count)) ofLengths[symbol] = bits.read(3);
  const code = new PrefixCode(ofLengths);
  let left = bits.read(1) === 1 ? 2 + bits.read(2 + 2 * bits.read(3)) : alphabet;
  if (left > alphabet) throw new Damage();
  let last = 8;
  for (let at = 0; at < alphabet && left > 0; left--) {
    const symbol = code.next(bits);
    if (symbol < REPEAT) {
      lengths[at++] = symbol;
      if (symbol > 0) last = symbol;
      continue;
    }
    const times =
      symbol === REPEAT ? 3 + bits.read(2) : symbol === FEW_ZEROS ? 3 + bits.read(3) : 11 + bits.read(7);
    if (at + times > alphabet) throw new Damage();
    lengths.fill(symbol === REPEAT ? last : 0, at, at + times);
    at += times;
  }
  return new PrefixCode(lengths);
}

const MAX_CODE_BITS = 15;

/** A canonical prefix code. A code of one symbol takes no bits. */
class PrefixCode {
  readonly #counts = new Uint16Array(MAX_CODE_BITS + 1);
  readonly #symbols: number[] = [];

  /** `lengths`: bits of each symbol's code; 0 for a symbol without one. */
  constructor(lengths: Uint8Array) {
    for (let length = 1; length <= MAX_CODE_BITS; length++) {
      for (
        let symbol = lengths.indexOf(length);
        symbol !== -1;
        symbol = lengths.indexOf(length, symbol + 1)
      ) {
        this.#symbols.push(symbol);
        this.#counts[length] = (this.#counts[length] ?? 0) + 1;
      }
    }
    let open = 1;
    for (const count of this.#counts.subarray(1)) open = open * 2 - count;
    if (this.#symbols.length === 0 || (this.#symbols.length > 1 && open !== 0)) throw new Damage();
  }

  next(bits: Bits): number {
    const [only] = this.#symbols;
    if (only !== undefined && this.#symbols.length === 1) return only;
    let [code, first, index] = [0, 0, 0];
    for (let length = 1; length <= MAX_CODE_BITS; length++) {
      code = code * 2 + bits.read(1);
      const count = this.#counts[length] ?? 0;
      if (code - first < count) return this.#symbols[index + code - first] ?? 0;
      index += count;
      first = (first + count) * 2;
    }
    throw new Damage();
  }
}

/** Bits of bytes, the lowest first. */
class Bits {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** At most 18 bits. Throws `Damage` behind the end. */
  read(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i++) {
      const byte = this.#bytes[this.#at >> 3];
      if (byte === undefined) throw new Damage();
      value |= ((byte >> (this.#at++ & 7)) & 1) << i;
    }
    return value;
  }
}

/** The names of the image types in messages. */
export const TYPE_NAMES: Record<ImageMimeType, string> = {
  "image/png": "PNG",
  "image/jpeg": "JPEG",
  "image/webp": "WebP",
};

/** Images that take more memory are decoded one at a time. Ordinary images of 4096x4096 take less. */
const LARGE_BYTES = 16_000_000;

/** The longest time for one image. It is checked between rows; formats without rows are bounded before decoding. */
export const DECODE_SECONDS = 30;

/**
 * Every decoding of one service: each image is measured before any decoder sees it, and waits for its turn. Together
 * they hold at most `imageDecodeBytes` and `LARGE_BYTES` for each small one, and leave at least one thread of the pool to
 * files, time and everything else. A large image never keeps small ones waiting.
 */
export class Decoding {
  readonly #large = new PQueue({ concurrency: 1 });
  readonly #small: PQueue;

  /** `threads`: the size of libuv's pool. */
  constructor(threads = 4) {
    this.#small = threads >= 3 ? new PQueue({ concurrency: Math.min(2, threads - 2) }) : this.#large;
  }

  /**
   * Runs the work with the bytes for a decoder: those of the image, without what a decoder would unpack for nothing. Throws
   * `InvalidImageError` for an image beyond a limit, with the limit; the work is not run then. `maxPixels` counts all
   * frames.
   */
  async decode<T>(
    bytes: Buffer,
    { maxPixels }: { maxPixels: number },
    work: (decodable: Buffer, image: ImageCost) => Promise<T>,
  ): Promise<T> {
    const cost = measured(bytes, maxPixels);
    const queue = cost.decodeBytes > LARGE_BYTES ? this.#large : this.#small;
    return queue.add(async () => {
      if (cost.mimeType === "image/webp") await checkCodeGroups(bytes, cost);
      return work(cost.mimeType === "image/png" ? await withoutTexts(bytes) : bytes, cost);
    }) as Promise<T>;
  }
}

function measured(bytes: Buffer, maxPixels: number): ImageCost {
  const cost = measureImage(bytes, maxPixels);
  if (typeof cost !== "string") return cost;
  if (bytes.length === 0) throw new InvalidImageError("the image is empty");
  const type = sniffImageType(bytes);
  if (type === null) throw new InvalidImageError("the bytes are not a PNG, JPEG or WebP image");
  throw new InvalidImageError(`the ${TYPE_NAMES[type]} image ${cost}`);
}

/** Profiles of printers have about 2 MiB. */
const MAX_PROFILE_BYTES = 4 * 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
/** In front of a chunk's data, and behind it. */
const [HEAD_BYTES, CHECKSUM_BYTES] = [8, 4];

const [ICCP, IEND] = [chunkType("iCCP"), chunkType("IEND")];
const TEXTS = new Set(["tEXt", "zTXt", "iTXt"].map(chunkType));

/**
 * Returns a PNG for a decoder: without its texts, which a decoder would unpack for nothing, and with one colour profile at
 * most. Throws `InvalidImageError` when that profile unpacks to more than 4 MiB. The form of the chunks is that of the
 * PNG specification, 11.3.2.3 and 11.3.3.
 */
async function withoutTexts(png: Buffer): Promise<Buffer> {
  const kept: Buffer[] = [];
  let from = 0;
  let profile: Buffer | null = null;
  for (const { type, data } of pngChunks(png)) {
    if (type === IEND) break;
    if (type === ICCP && profile === null) profile = data;
    else if (type === ICCP || TEXTS.has(type)) {
      const at = data.byteOffset - png.byteOffset;
      if (at - HEAD_BYTES > from) kept.push(png.subarray(from, at - HEAD_BYTES));
      from = at + data.length + CHECKSUM_BYTES;
    }
  }
  if (profile !== null && (await isProfileTooLarge(profile))) {
    throw new InvalidImageError(
      "the PNG image has a colour profile of more than 4 MiB; save it with a smaller one",
    );
  }
  return from === 0 ? png : Buffer.concat([...kept, png.subarray(from)]);
}

/** Unpacks a piece at a time, off the main thread; a damaged profile counts up to its damage. */
async function isProfileTooLarge(data: Buffer): Promise<boolean> {
  const unpacking = createInflate({ chunkSize: PIECE_BYTES, finishFlush: zlib.Z_SYNC_FLUSH });
  // Behind the name, its NUL and the method.
  unpacking.end(data.subarray(data.indexOf(0) + 2));
  let bytes = 0;
  try {
    for await (const piece of unpacking) {
      bytes += piece.length;
      if (bytes > MAX_PROFILE_BYTES) return true;
    }
  } catch {
    // The image decoder has its own opinion of damage.
  }
  return false;
}
