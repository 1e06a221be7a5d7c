import type { Sharp } from "sharp";
import type { ImageMimeType } from "../contract/image-formats.ts";
import type { ImageConverter } from "../domain/ports/image-converter.ts";
import { DECODE_SECONDS, type Decoding } from "./decoding.ts";

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
