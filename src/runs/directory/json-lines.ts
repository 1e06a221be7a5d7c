import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { z } from "zod";
import { saving } from "../../client/file-errors.ts";
import { writeFileDurably } from "../../kernel/files/durable-file.ts";
import { createYield } from "../../kernel/yield.ts";
import { hashFile } from "./verified-files.ts";

const PIECE_CHARS = 64 * 1024;

/**
 * Writes one value a line, whole or not at all, with only a piece of the text in memory. `values` is iterated twice,
 * since a file with the same content is not touched. Throws `SAVE_FAILED`.
 */
export async function writeJsonLines(path: string, values: Iterable<unknown>): Promise<void> {
  const hash = createHash("sha256");
  for await (const piece of linePieces(values)) hash.update(piece);
  if ((await hashFile(path)) === hash.digest("hex")) return;
  await saving(path, () => writeFileDurably(path, linePieces(values)));
}

/** Yields the text of one value a line, in pieces of several lines. */
export async function* linePieces(values: Iterable<unknown>): AsyncGenerator<string, void, undefined> {
  const yieldSometimes = createYield();
  let piece = "";
  for (const value of values) {
    piece += `${JSON.stringify(value)}\n`;
    if (piece.length < PIECE_CHARS) continue;
    await yieldSometimes(piece.length);
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

/**
 * Writes a file of a run, whole or not at all. A file with the same content is not touched, so that reading a complete
 * run needs no writable disk. Throws `SAVE_FAILED`.
 */
export async function writeWhenChanged(path: string, text: string): Promise<void> {
  const before = await readFile(path, "utf8").catch(() => null);
  if (before !== text) await saving(path, () => writeFileDurably(path, text));
}

/** Returns the text of one value a line. */
export function toJsonLines(values: readonly unknown[]): string {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

/** Reads the lines of a file that this program wrote. A line that is not JSON of this shape is left out. */
export function readJsonLines<T>(text: string, shape: z.ZodType<T>): T[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line === "" ? [] : [shape.parse(JSON.parse(line))];
    } catch {
      return [];
    }
  });
}
