import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";

// Plain descriptors: an object around each would take half of the main thread's time. Closing a synced one takes a
// microsecond here, and fifty in a thread.
const [open, write, sync] = [promisify(fs.open), promisify(fs.write), promisify(fs.fsync)] as const;

/** A file with this ending is half written. It was never the real one and can be removed. */
export const PARTIAL_SUFFIX = ".partial";

/**
 * Writes a file so that it is whole or absent, whatever happens: under a temporary name, synced, renamed, and the
 * directory synced. When this resolves, the bytes survive a power cut. Pieces are written as they come. `mode` applies
 * to a new file (default 0644).
 */
export async function writeFileDurably(
  path: string,
  data: Uint8Array | string | AsyncIterable<string>,
  options: { mode?: number } = {},
): Promise<void> {
  const temporary = join(
    dirname(path),
    `.${basename(path)}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}`,
  );
  try {
    const file = await open(temporary, "wx", options.mode ?? 0o644);
    try {
      if (typeof data === "string" || data instanceof Uint8Array) await writeAll(file, data);
      else for await (const piece of data) await writeAll(file, piece);
      await sync(file);
    } finally {
      fs.closeSync(file);
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

async function writeAll(file: number, data: Uint8Array | string): Promise<void> {
  const bytes = typeof data === "string" ? Buffer.from(data) : data;
  for (let at = 0; at < bytes.length; ) at += (await write(file, bytes, at)).bytesWritten;
}

const LEFTOVER = new RegExp(`^\\..+\\.[0-9a-f]{12}\\${PARTIAL_SUFFIX}$`);

/** Removes half-written files that `writeFileDurably` left in a directory (not below it) when its process was killed. */
export async function removePartialFiles(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (LEFTOVER.test(name)) await rm(join(directory, name), { force: true });
  }
}

/** Makes a rename or a new name in the directory survive a power cut. */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const directory = await open(path, "r");
  try {
    await sync(directory);
  } finally {
    fs.closeSync(directory);
  }
}
