import PQueue from "p-queue";
import { type ImageMimeType, sniffImageType } from "../contract/image-formats.ts";
import { type ImageCost, measureImage } from "../contract/image-structure.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";
import { withoutTexts } from "./packed-chunks.ts";
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
