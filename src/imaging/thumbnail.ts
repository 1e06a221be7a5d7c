import { sharp } from "./sharp-config.ts";

const QUALITY = 72;

/**
 * A small WebP of a picture, its longer side at most `maxEdgePx` pixels, turned as its EXIF says, on white where it is
 * transparent. Null for bytes that do not decode.
 * Rule: IMG-11.
 */
export async function thumbnail(bytes: Uint8Array, maxEdgePx: number): Promise<Uint8Array | null> {
  try {
    return await sharp(bytes)
      .rotate()
      .resize(maxEdgePx, maxEdgePx, { fit: "inside", withoutEnlargement: true })
      .flatten({ background: "#ffffff" })
      .webp({ quality: QUALITY, effort: 2 })
      .toBuffer();
  } catch {
    return null;
  }
}
