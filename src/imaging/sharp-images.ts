import type { Sharp } from "sharp";
import type { ImageMimeType } from "../contract/image-formats.ts";
import { type ImageCost, missingEnd } from "../contract/image-structure.ts";
import {
  type ImageConverter,
  type ImageFacts,
  type ImageInspector,
  InvalidImageError,
} from "../domain/ports/image-inspector.ts";
import { DECODE_SECONDS, type Decoding, TYPE_NAMES } from "./decoding.ts";

interface Header {
  widthPx: number;
  heightPx: number;
  frames: number;
  isTurned: boolean;
}

/** Images that need no further decoding while these bytes are in memory. */
const decoded = new WeakMap<Buffer, ImageFacts>();

/** Remembers the facts of an image that was decoded, and whose bytes nothing will change: it is decoded no more. */
export function rememberDecoded(bytes: Buffer, facts: ImageFacts): void {
  decoded.set(bytes, facts);
}

/**
 * Decodes with libvips on its own threads, as soon as `decoding` lets it. The library is loaded with the first image: a
 * service that only shows what it has needs none. Width and height are those of the stored pixels: an EXIF orientation is
 * reported, not applied. An animated WebP is taken as an image of its frame size; all its frames are decoded and their
 * pixels count together.
 */
export function sharpInspector(decoding: Decoding): ImageInspector {
  return {
    inspect: async (bytes, limits) => {
      const known = decoded.get(bytes);
      if (known !== undefined && known.decodedPixels <= limits.maxPixels) return known;
      return decoding.decode(bytes, limits, async (decodable, cost): Promise<ImageFacts> => {
        const { mimeType } = cost;
        const name = TYPE_NAMES[mimeType];
        const header = await readHeader(decodable, name);
        const { widthPx, heightPx, isTurned, frames } = header;
        const decodedPixels = widthPx * heightPx * frames;
        if (decodedPixels > cost.widthPx * cost.heightPx * cost.frames) {
          throw new InvalidImageError(`the ${name} image has two headers that differ`);
        }
        const missing = missingEnd(bytes, mimeType);
        if (missing !== null) throw new InvalidImageError(`the ${name} image is truncated: ${missing}`);
        await decodeAll(decodable, cost, header);
        return { mimeType, widthPx, heightPx, decodedPixels, ...(isTurned ? { isTurned } : {}) };
      });
    },
  };
}

async function readHeader(bytes: Buffer, name: string): Promise<Header> {
  const { sharp } = await import("./sharp-config.ts");
  try {
    // No pixel limit here: the size was measured before.
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
 * memory. A WebP that does not move is made small while it is decoded, all of it: else the decoder holds it whole,
 * four bytes a pixel.
 */
async function decodeAll(
  bytes: Buffer,
  { mimeType }: ImageCost,
  header: Omit<Header, "isTurned">,
): Promise<void> {
  const { sharp } = await import("./sharp-config.ts");
  const { widthPx, heightPx, frames } = header;
  const lastFrame = frames > 1 ? { page: frames - 1 } : {};
  const image = sharp(bytes, { failOn: "warning", limitInputPixels: widthPx * heightPx, ...lastFrame });
  const isStill = mimeType === "image/webp" && frames === 1;
  const part = isStill
    ? image.resize(1, 1, { fit: "fill", kernel: "nearest" })
    : image.extract({ left: 0, top: heightPx - 1, width: widthPx, height: 1 });
  try {
    await part.timeout({ seconds: DECODE_SECONDS }).raw().toBuffer();
  } catch (error) {
    throw new InvalidImageError(`the ${TYPE_NAMES[mimeType]} image does not decode: ${reason(error)}`, {
      cause: error,
    });
  }
}

/** The first line of the library's message, without its internal prefixes. */
function reason(error: unknown): string {
  const line = error instanceof Error ? (error.message.trim().split("\n")[0] ?? "") : String(error);
  const text = line.replace(/^(Input buffer |\w+: )+/, "").replace(/[:\s]+$/, "");
  return text.slice(0, 160) || "the decoder gave no reason";
}

const GOOD_QUALITY = 90;

/**
 * Encodes with libvips on its own threads, as soon as `decoding` lets it. The EXIF facts about how an image was made
 * stay.
 */
export function sharpConverter(decoding: Decoding): ImageConverter {
  return {
    convert: (bytes, { mimeType, quality }) =>
      decoding.decode(bytes, { maxPixels: Number.POSITIVE_INFINITY }, async (decodable) => {
        const { sharp } = await import("./sharp-config.ts");
        const image = sharp(decodable, { limitInputPixels: false }).keepExif();
        // The encoders begin at 1.
        return encode(image, mimeType, Math.max(1, quality ?? GOOD_QUALITY))
          .timeout({ seconds: DECODE_SECONDS })
          .toBuffer();
      }),
    soften: (bytes, { mimeType, edgePx }) =>
      decoding.decode(bytes, { maxPixels: Number.POSITIVE_INFINITY }, async (decodable) => {
        const { sharp } = await import("./sharp-config.ts");
        const { width, height } = await sharp(decodable, { limitInputPixels: false }).metadata();
        const rough = await sharp(decodable, { limitInputPixels: false })
          .resize(edgePx, edgePx, { fit: "inside", withoutEnlargement: true })
          .png()
          .timeout({ seconds: DECODE_SECONDS })
          .toBuffer();
        return encode(sharp(rough).resize(width, height, { fit: "fill" }), mimeType, GOOD_QUALITY)
          .timeout({ seconds: DECODE_SECONDS })
          .toBuffer();
      }),
  };
}

function encode(image: Sharp, mimeType: ImageMimeType, quality: number): Sharp {
  switch (mimeType) {
    case "image/png":
      return image.png();
    case "image/jpeg":
      return image.flatten({ background: "#ffffff" }).jpeg({ quality });
    case "image/webp":
      return image.webp({ quality });
  }
}
