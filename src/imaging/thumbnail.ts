import type { DigitalSource } from "../contract/image-formats.ts";
import { DECODE_SECONDS, Decoding } from "./decoding.ts";
import { xmpOf } from "./picture-metadata.ts";

const QUALITY = 72;

/**
 * A small WebP of a picture, its longer side at most `maxEdgePx` pixels, turned by its EXIF orientation. Where it is
 * transparent, it stays so if it `keepsAlpha`, and else is white. `source`: the kind that its metadata says it is of. Null for bytes that do not decode, and for those that `decoding` does not take.
 */
export async function thumbnail(
  bytes: Buffer,
  maxEdgePx: number,
  decoding: Decoding,
  { keepsAlpha = false, source = null }: { keepsAlpha?: boolean; source?: DigitalSource | null } = {},
): Promise<Uint8Array | null> {
  // Loaded with the first picture.
  const { sharp } = await import("./sharp-config.ts");
  try {
    return await decoding.decode(bytes, { maxPixels: Number.POSITIVE_INFINITY }, (decodable) => {
      const small = sharp(decodable)
        .rotate()
        .resize(maxEdgePx, maxEdgePx, { fit: "inside", withoutEnlargement: true })
        .flatten(keepsAlpha ? false : { background: "#ffffff" })
        .webp({ quality: QUALITY, effort: 2 })
        .timeout({ seconds: DECODE_SECONDS });
      return (source === null ? small : small.withXmp(xmpOf(source))).toBuffer();
    });
  } catch {
    return null;
  }
}

/** An image as three bytes a pixel, row by row. */
interface Pixels {
  widthPx: number;
  heightPx: number;
  rgb: Uint8Array;
}

/**
 * The image made small enough for a box of pixels, its shape kept, on black where it is transparent. Throws for what does
 * not decode, and for an image that `Decoding` does not take.
 */
export async function toPixels(bytes: Buffer, box: { widthPx: number; heightPx: number }): Promise<Pixels> {
  // Loaded with the first picture that is shown.
  const { sharp } = await import("./sharp-config.ts");
  const limits = { maxPixels: Number.POSITIVE_INFINITY };
  const { data, info } = await new Decoding().decode(bytes, limits, (decodable) =>
    sharp(decodable)
      .resize(Math.max(1, box.widthPx), Math.max(1, box.heightPx), { fit: "inside" })
      .flatten({ background: "black" })
      .toColourspace("srgb")
      .timeout({ seconds: DECODE_SECONDS })
      .raw()
      .toBuffer({ resolveWithObject: true }),
  );
  return { widthPx: info.width, heightPx: info.height, rgb: data };
}
