import PQueue from "p-queue";
import { missingEnd } from "../contract/image-end.ts";
import { type ImageMimeType, sniffImageType } from "../contract/image-types.ts";
import { type ImageFacts, type ImageInspector, InvalidImageError } from "../domain/ports/image-inspector.ts";
import { sharp } from "./sharp-config.ts";
import { countWebpFrames } from "./webp-frames.ts";

const NAMES: Record<ImageMimeType, string> = {
  "image/png": "PNG",
  "image/jpeg": "JPEG",
  "image/webp": "WebP",
};

/** An animation with more frames is refused: see `countWebpFrames`. */
const MAX_FRAMES = 1000;

/** Some forms of larger images are held whole in memory, up to 8 bytes a pixel: they are decoded one at a time. */
const LARGE_PIXELS = 16_000_000;
const largeImages = new PQueue({ concurrency: 1 });

interface Header {
  widthPx: number;
  heightPx: number;
  frames: number;
  isTurned: boolean;
}

/**
 * Decodes with libvips on its own threads. Width and height are those of the stored pixels: an EXIF orientation is
 * told, not applied. An animated WebP is taken as an image of its frame size; all its frames are decoded and their pixels
 * count together. Large images wait for each other.
 * Rules: IMG-1, IMG-2, IMG-3, IMG-4, IMG-5, IMG-9, IMG-10.
 */
export const sharpInspector: ImageInspector = {
  async inspect(bytes, limits): Promise<ImageFacts> {
    const mimeType = sniffImageType(bytes);
    if (mimeType === null) {
      throw new InvalidImageError(
        bytes.length === 0 ? "the image is empty" : "the bytes are not a PNG, JPEG or WebP image",
      );
    }
    const name = NAMES[mimeType];
    if (mimeType === "image/webp" && countWebpFrames(bytes, MAX_FRAMES) > MAX_FRAMES) {
      throw new InvalidImageError(`the ${name} image has more than ${MAX_FRAMES} frames`);
    }
    const header = await readHeader(bytes, name);
    const pixels = header.widthPx * header.heightPx * header.frames;
    if (pixels > limits.maxPixels) {
      const frames = header.frames > 1 ? ` in ${header.frames} frames` : "";
      throw new InvalidImageError(
        `the ${name} image has ${header.widthPx}x${header.heightPx} pixels${frames}, more than the ${limits.maxPixels} allowed`,
      );
    }
    const missing = missingEnd(bytes, mimeType);
    if (missing !== null) throw new InvalidImageError(`the ${name} image is truncated: ${missing}`);
    const decode = () => decodeAll(bytes, name, header, limits.maxPixels);
    await (pixels > LARGE_PIXELS ? largeImages.add(decode) : decode());
    const { widthPx, heightPx, isTurned } = header;
    return { mimeType, widthPx, heightPx, decodedPixels: pixels, ...(isTurned ? { isTurned } : {}) };
  },
};

async function readHeader(bytes: Buffer, name: string): Promise<Header> {
  try {
    // No pixel limit here: this reads the header only, and the caller words the refusal with the real size.
    const {
      width,
      height,
      pages,
      orientation = 1,
    } = await sharp(bytes, {
      limitInputPixels: false,
      failOn: "none",
    }).metadata();
    return { widthPx: width, heightPx: height, frames: pages ?? 1, isTurned: orientation >= 5 };
  } catch (error) {
    throw new InvalidImageError(`the ${name} image has no readable header: ${reason(error)}`, {
      cause: error,
    });
  }
}

/**
 * Reads the last row of the last frame: that decodes everything before it, without holding the whole picture in
 * memory.
 */
async function decodeAll(bytes: Buffer, name: string, header: Header, maxPixels: number): Promise<void> {
  const lastFrame = header.frames > 1 ? { page: header.frames - 1 } : {};
  try {
    await sharp(bytes, { failOn: "warning", limitInputPixels: maxPixels, ...lastFrame })
      .extract({ left: 0, top: header.heightPx - 1, width: header.widthPx, height: 1 })
      .raw()
      .toBuffer();
  } catch (error) {
    throw new InvalidImageError(`the ${name} image does not decode: ${reason(error)}`, { cause: error });
  }
}

/** The first line of the library's message, without its internal prefixes. */
function reason(error: unknown): string {
  const line = error instanceof Error ? (error.message.trim().split("\n")[0] ?? "") : String(error);
  const text = line.replace(/^(Input buffer |\w+: )+/, "").replace(/[:\s]+$/, "");
  return text.slice(0, 160) || "the decoder gave no reason";
}
