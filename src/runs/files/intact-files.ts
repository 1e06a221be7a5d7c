import { join } from "node:path";
import { IMAGES_FOLDER } from "../directory/names.ts";
import type { ResultFile, ResultLine } from "../directory/results-file.ts";
import { hashFile } from "./hash-file.ts";

/** Whether the file on disk is the one that the results name, by its hash: dates and sizes prove nothing. */
export async function isIntact(dir: string, file: ResultFile): Promise<boolean> {
  if (file.entry !== undefined || !isImagePath(file.path)) return false;
  return (await hashFile(join(dir, file.path))) === file.sha256;
}

/** Whether every file of a result is on disk, unchanged. */
export async function isWholeResult(dir: string, line: ResultLine): Promise<boolean> {
  if (line.files.length === 0) return false;
  for (const file of line.files) if (!(await isIntact(dir, file))) return false;
  return true;
}

/** Whether a path is a name directly below `images/`. Other paths are not used, since a results file can be edited. */
export function isImagePath(path: unknown): boolean {
  return (
    typeof path === "string" &&
    path.startsWith(`${IMAGES_FOLDER}/`) &&
    /^[^/\\\0]+$/.test(path.slice(IMAGES_FOLDER.length + 1)) &&
    !/^\.{1,2}$/.test(path.slice(IMAGES_FOLDER.length + 1))
  );
}
