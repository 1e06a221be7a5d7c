import { sharp } from "./sharp-config.ts";

/** An image as three bytes a pixel, row by row. */
export interface Pixels {
  widthPx: number;
  heightPx: number;
  rgb: Uint8Array;
}

/** The image made small enough for a box of pixels, its shape kept, on black where it is transparent. */
export async function toPixels(
  bytes: Uint8Array,
  box: { widthPx: number; heightPx: number },
): Promise<Pixels> {
  const { data, info } = await sharp(bytes)
    .resize(Math.max(1, box.widthPx), Math.max(1, box.heightPx), { fit: "inside" })
    .flatten({ background: "black" })
    .toColourspace("srgb")
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { widthPx: info.width, heightPx: info.height, rgb: data };
}
