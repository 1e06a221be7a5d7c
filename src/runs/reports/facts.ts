import { formatSize } from "../../kernel/text.ts";
import type { ResultFile } from "../directory/results-file.ts";

/** `1024 × 1024`, `PNG`, `1.4 MB`: what is known of a file. */
export function fileFacts({ width, height, mime_type, bytes }: ResultFile): string[] {
  const size = width === null || height === null ? [] : [`${width} × ${height}`];
  const type = mime_type.replace(/^image\//, "").toUpperCase();
  return [...size, type, formatSize(bytes).replace(" ", "\u00a0")];
}

/** `2031-05-06 07:08 UTC`. */
export function shortDate(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
