import { link, open, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isSystemError, saving } from "../../client/file-errors.ts";
import { type ImageMimeType, readImageHeader } from "../../contract/image-formats.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { ResultFile } from "../directory/results-file.ts";
import { type ImageTarget, pathsFor, temporaryPath } from "./image-target.ts";

export interface SavedImage {
  /** Absolute. */
  path: string;
  facts: Omit<ResultFile, "path">;
}

/** Returns the facts of a whole image for the results. */
export function factsOf(data: Buffer, mimeType: ImageMimeType): Omit<ResultFile, "path"> {
  const header = readImageHeader(data);
  return {
    sha256: sha256Hex(data),
    bytes: data.length,
    mime_type: mimeType,
    width: header?.widthPx ?? null,
    height: header?.heightPx ?? null,
  };
}

/**
 * Saves an image unchanged under the first of its names that is free. Only the exact name that the caller gave may be
 * replaced, and only if `mayReplace`. The image is on disk when this resolves, and absent when it fails.
 */
export async function saveImage(
  target: ImageTarget,
  data: Buffer,
  mimeType: ImageMimeType,
): Promise<SavedImage> {
  const temporary = temporaryPath(target.dir, target.stem);
  return saving(join(target.dir, target.name ?? target.stem), async () => {
    try {
      await writeSynced(temporary, data);
      const path = await place(temporary, target, mimeType);
      await syncDirectory(target.dir);
      return { path, facts: factsOf(data, mimeType) };
    } finally {
      await rm(temporary, { force: true });
    }
  });
}

async function writeSynced(path: string, data: Buffer): Promise<void> {
  const file = await open(path, "wx", 0o644);
  try {
    await file.writeFile(data);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function place(temporary: string, target: ImageTarget, mimeType: ImageMimeType): Promise<string> {
  for (const path of pathsFor(target, mimeType)) {
    if (target.mayReplace && basename(path) === target.name) {
      await rename(temporary, path);
      return path;
    }
    if (await moveIfFree(temporary, path)) return path;
  }
  throw new Error(`no free name in ${dirname(temporary)}`);
}

/** Uses a hard link, which fails when the name is taken. Some file systems have none; there the file is renamed. */
async function moveIfFree(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code === "EEXIST") return false;
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"].includes(error.code)) throw error;
    if ((await stat(to).catch(() => null)) !== null) return false;
    await rename(from, to);
    return true;
  }
}
