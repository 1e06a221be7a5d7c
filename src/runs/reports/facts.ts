import type { ResultFile } from "../directory/results-file.ts";

const UNITS = ["B", "kB", "MB", "GB"];

/** `812 B`, `1.4 MB`: for people, in powers of 1000, on one line. */
export function shortBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toFixed(1)}\u00a0${UNITS[unit]}`;
}

/** `1024 × 1024`, `PNG`, `1.4 MB`: what is known of a file. */
export function fileFacts({ width, height, mime_type, bytes }: ResultFile): string[] {
  const size = width === null || height === null ? [] : [`${width} × ${height}`];
  return [...size, mime_type.replace(/^image\//, "").toUpperCase(), shortBytes(bytes)];
}

/** `1 image`, `3 images`. */
export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** `2031-05-06 07:08 UTC`. */
export function shortDate(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
