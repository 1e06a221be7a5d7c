import { mkdir, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { nearestExisting } from "./nearest-existing.ts";

/**
 * Makes a directory with its missing parents, and returns the topmost new one; undefined when it existed. Rejects with the
 * error of the system. `mkdir` of Node with `recursive` never returns where the system answers ENOENT below an existing
 * parent, as `/proc` does.
 */
export async function makeDirectory(path: string, mode?: number): Promise<string | undefined> {
  let at = await nearestExisting(path);
  let first: string | undefined;
  const missing = relative(at, path).split(sep).filter(Boolean);
  if (missing.length === 0) missing.push("");
  for (const name of missing) {
    at = join(at, name);
    try {
      await mkdir(at, mode);
      first ??= at;
    } catch (error) {
      // Another process may have made it meanwhile.
      const isThere = (error as NodeJS.ErrnoException).code === "EEXIST" && (await stat(at)).isDirectory();
      if (!isThere) throw error;
    }
  }
  return first;
}
