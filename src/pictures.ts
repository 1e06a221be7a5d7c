import { Decoding } from "./imaging/decoding.ts";
import { type Pixels, toPixels } from "./imaging/pixels.ts";

/** An image, made small enough for so many cells of a terminal: a cell shows two pixels, one above the other. */
export function toCells(
  bytes: Buffer,
  cells: { columns: number; rows: number },
  decoding = new Decoding(),
): Promise<Pixels> {
  return toPixels(bytes, { widthPx: cells.columns, heightPx: cells.rows * 2 }, decoding);
}
