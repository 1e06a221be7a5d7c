import { lstat, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { hashFile } from "./hash-file.ts";

/** Throws `FILE_EXISTS` when something other than a file is at the path: a directory, a device, a link. */
export async function requireReplaceable(path: string): Promise<void> {
  const found = await lstat(path).catch(() => null);
  if (found === null || found.isFile()) return;
  throw new ImgbatchError(
    "FILE_EXISTS",
    `${path} exists and is not a regular file, so it was left as it is.`,
  );
}

/** Returns whether a file with this content is at the path. Throws `FILE_EXISTS` for other content that may not be replaced. */
export async function isThereAlready(path: string, sha256: string, mayReplace: boolean): Promise<boolean> {
  await requireReplaceable(path);
  if ((await lstat(path).catch(() => null)) === null) return false;
  if ((await hashFile(path)) === sha256) return true;
  if (mayReplace) return false;
  const message = `${path} exists already, with other content: --force replaces it.`;
  throw new ImgbatchError("FILE_EXISTS", message, { param: "--output" });
}

/**
 * Moves a checked file to its final name, on disk when this resolves. When a file with the same content has the name
 * already, that one stays, `from` is removed, and true is returned. Throws `FILE_EXISTS` for other content that may not
 * be replaced.
 */
export async function moveInto(from: string, to: string, mayReplace: boolean): Promise<boolean> {
  const sha256 = await hashFile(from);
  if (sha256 !== null && (await isThereAlready(to, sha256, mayReplace))) {
    await saving(from, () => rm(from, { force: true }));
    return true;
  }
  await saving(to, async () => {
    await rename(from, to);
    await syncDirectory(dirname(to));
  });
  return false;
}
