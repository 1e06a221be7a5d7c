import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { readRegularFile, requireWriteRoot } from "../../kernel/files.ts";
import { parseJson } from "../../kernel/json.ts";
import { withLockFile } from "./claim.ts";

/*
 * A file of a run to which JSON lines are only ever appended. A line is on disk when the call resolves. A kill, and other
 * processes that append at the same time, lose none and mix none.
 */

/** Reads the lines; none if there is no file. A last line that was cut off by a kill is left out. Throws `SAVE_FAILED`. */
export function readJournal(path: string): string[] {
  const { lines, tail } = splitLines(readBytes(path));
  return tail === "" || isTorn(tail) ? lines : [...lines, tail];
}

/**
 * Appends values. A last line that was cut off by a kill is removed first; one that only lacks its line feed is given to `check`
 * with its number, and gets one. The run may be at work meanwhile. Throws `SAVE_FAILED`, and what `check` throws.
 */
export async function appendToJournal(
  path: string,
  values: readonly unknown[],
  clock: Clock,
  check: (last: string, number: number) => void = () => {},
): Promise<void> {
  const text = values.map((value) => `${JSON.stringify(value)}\n`).join("");
  await withLockFile(join(dirname(path), `.${basename(path)}.lock`), { clock }, () =>
    saving(path, async () => {
      const before = readBytes(path);
      const { lines, tail } = splitLines(before);
      const isWhole = tail === "" || !isTorn(tail);
      if (tail !== "" && isWhole) check(tail, lines.length + 1);
      const file = await open(path, "a+");
      try {
        await requireWriteRoot(file.fd, path);
        if (!isWhole) await file.truncate(before.lastIndexOf(LINE_FEED) + 1);
        await file.appendFile(`${tail !== "" && isWhole ? "\n" : ""}${text}`);
        await file.sync();
      } finally {
        await file.close();
      }
    }),
  );
}

const LINE_FEED = 0x0a;

/** More than any run needs. */
const MOST_BYTES = 256 * 1024 * 1024;

function readBytes(path: string): Buffer {
  try {
    return readRegularFile(path, MOST_BYTES);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return Buffer.alloc(0);
    throw new ImgbatchError("SAVE_FAILED", `Could not read ${path} (${code}).`, { cause: error });
  }
}

/** Returns the whole lines of a file, and what follows the last line feed. */
function splitLines(bytes: Buffer): { lines: string[]; tail: string } {
  const lines = bytes.toString("utf8").split("\n");
  const tail = lines.pop() ?? "";
  return { lines, tail: tail.trim() };
}

/** Whether a text without a line feed is the beginning of a line whose writer was killed. */
function isTorn(tail: string): boolean {
  try {
    parseJson(tail);
    return false;
  } catch {
    return true;
  }
}
