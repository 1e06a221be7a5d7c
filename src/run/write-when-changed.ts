import { readFile } from "node:fs/promises";
import { saving } from "../client/saving.ts";
import { writeFileDurably } from "../kernel/durable-file.ts";

/**
 * Writes a file of a run, whole or not at all, unless it holds the same already: a look at a run that is whole needs no
 * place to write to. Throws `SAVE_FAILED`.
 */
export async function writeWhenChanged(path: string, text: string): Promise<void> {
  const before = await readFile(path, "utf8").catch(() => null);
  if (before !== text) await saving(path, () => writeFileDurably(path, text));
}
