import { createHash } from "node:crypto";
import { saving } from "../client/saving.ts";
import { writeFileDurably } from "../kernel/durable-file.ts";
import { turnTaker } from "../kernel/turns.ts";
import { hashFile } from "./hash-file.ts";

const PIECE_CHARS = 64 * 1024;

/**
 * Writes one value a line, whole or not at all, with no more than a piece of the text in memory. `values` are gone
 * through twice: a file that holds the same already is not touched. Throws `SAVE_FAILED`.
 */
export async function writeJsonLines(path: string, values: Iterable<unknown>): Promise<void> {
  const hash = createHash("sha256");
  for await (const piece of linePieces(values)) hash.update(piece);
  if ((await hashFile(path)) === hash.digest("hex")) return;
  await saving(path, () => writeFileDurably(path, linePieces(values)));
}

/** The text of one value a line, in pieces of some lines. */
export async function* linePieces(values: Iterable<unknown>): AsyncGenerator<string, void, undefined> {
  const takeTurn = turnTaker();
  let piece = "";
  for (const value of values) {
    piece += `${JSON.stringify(value)}\n`;
    if (piece.length < PIECE_CHARS) continue;
    await takeTurn(piece.length);
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}
