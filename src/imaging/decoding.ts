import { createInflate, constants as zlib } from "node:zlib";
import PQueue from "p-queue";
import { type ImageMimeType, sniffImageType } from "../contract/image-formats.ts";
import { chunkType, type ImageCost, measureImage, pngChunks } from "../contract/image-structure.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";
import { checkCodeGroups } from "./webp-lossless.ts";

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
