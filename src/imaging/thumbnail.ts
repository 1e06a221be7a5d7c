import { DECODE_SECONDS, type Decoding } from "./decoding.ts";

const QUALITY = 72;

/**
 * A small WebP of a picture, its longer side at most `maxEdgePx` pixels, turned by its EXIF orientation, on white where
 * it is transparent. Null for bytes that do not decode, and for those that `decoding` does not take.
 */
export async function thumbnail(
  bytes: Buffer,
  maxEdgePx: number,
  decoding: Decoding,
): Promise<Uint8Array | null> {
  // Loaded with the first picture.
  const { sharp } = await import("./sharp-config.ts");
  try {
    return await decoding.decode(bytes, { maxPixels: Number.POSITIVE_INFINITY }, (decodable) =>
      sharp(decodable)
        .rotate()
        .resize(maxEdgePx, maxEdgePx, { fit: "inside", withoutEnlargement: true })
        .flatten({ background: "#ffffff" })
        .webp({ quality: QUALITY, effort: 2 })
        .timeout({ seconds: DECODE_SECONDS })
        .toBuffer(),
    );
  } catch {
    return null;
  }
}
