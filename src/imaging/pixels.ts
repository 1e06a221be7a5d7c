import { DECODE_SECONDS, Decoding } from "./decoding.ts";

/** An image as three bytes a pixel, row by row. */
export interface Pixels {
  widthPx: number;
  heightPx: number;
  rgb: Uint8Array;
}

/**
 * The image made small enough for a box of pixels, its shape kept, on black where it is transparent. Throws for what does
 * not decode, and for what `decoding` does not take.
 */
export async function toPixels(
  bytes: Buffer,
  box: { widthPx: number; heightPx: number },
  decoding = new Decoding(),
): Promise<Pixels> {
  // Loaded with the first picture that is shown.
  const { sharp } = await import("./sharp-config.ts");
  const limits = { maxPixels: Number.POSITIVE_INFINITY };
  const { data, info } = await decoding.decode(bytes, limits, (decodable) =>
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
