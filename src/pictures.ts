import { type Pixels, toPixels } from "./imaging/pixels.ts";

/** An image, made small enough for so many cells of a terminal: a cell shows two pixels, one above the other. */
export function toCells(bytes: Uint8Array, cells: { columns: number; rows: number }): Promise<Pixels> {
  return toPixels(bytes, { widthPx: cells.columns, heightPx: cells.rows * 2 });
}
