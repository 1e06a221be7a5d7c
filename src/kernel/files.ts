import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { statSync } from "node:fs";
import { lstat, mkdir, readdir, readlink, realpath, rename, rm, rmdir, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, parse, relative, sep } from "node:path";
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
  data: Uint8Array | string | AsyncIterable<Uint8Array | string>,
  options: { mode?: number } = {},
): Promise<void> {
  const temporary = join(
    dirname(path),
    `.${basename(path)}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}`,
  );
  try {
    const file = await open(temporary, "wx", options.mode ?? 0o644);
    try {
      await requireWriteRoot(file, temporary);
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

/** Whether a name is that of a file that `writeFileDurably` is writing, or has left. */
export function isPartialFile(name: string): boolean {
  return LEFTOVER.test(name);
}

/** Removes half-written files that `writeFileDurably` left in a directory (not below it) when its process was killed. */
export async function removePartialFiles(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (isPartialFile(name)) await rm(join(directory, name), { force: true });
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

/**
 * Makes a directory with its missing parents, and returns the topmost new one; undefined when it existed. Rejects with the
 * error of the system, and with `EXDEV` as `requireWriteRoot` does. `mkdir` of Node with `recursive` never returns where the system answers ENOENT below an existing
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
      await requireMadeBelow(at);
      first ??= at;
    } catch (error) {
      // Another process may have made it meanwhile.
      const isThere = (error as NodeJS.ErrnoException).code === "EEXIST" && (await stat(at)).isDirectory();
      if (!isThere) throw error;
    }
  }
  return first;
}

/** Returns the path itself if it exists, else its nearest parent that does. A path that cannot be examined counts as existing. */
export async function nearestExisting(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await stat(at).then(
      () => true,
      ({ code }: NodeJS.ErrnoException) => code !== "ENOENT" && code !== "ENOTDIR",
    );
    if (isThere || at === dirname(at)) return at;
  }
}

/**
 * Returns the real path of what lies below a directory, or could be made there. Null if it lies elsewhere, also where links
 * lead, and for a link that leads nowhere.
 */
export async function realPathBelow(root: string, path: string): Promise<string | null> {
  const existing = await nearestExisting(path);
  const missing = relative(existing, path);
  const [first = ""] = missing.split(sep);
  if (first !== "" && (await isLink(join(existing, first)))) return null;
  const top = await realpath(root);
  const real = join(await realpath(existing), missing);
  return real === top || real.startsWith(join(top, sep)) ? real : null;
}

/** Whether a path is a directory or lies in it, by the names alone: links are not followed. */
export function isWithin(directory: string, path: string): boolean {
  const inside = relative(directory, path);
  return !inside.startsWith("..") && !isAbsolute(inside);
}

/**
 * Returns the real path of an open file if it lies below a directory; else null. `path` is the name by which it was opened. A
 * check before the opening says nothing: another program may put a link in the place of a directory between the two.
 */
export async function openPathBelow(root: string, descriptor: number, path: string): Promise<string | null> {
  const top = await realpath(root);
  // Linux knows where an open file is. Elsewhere its device and inode must be those of a path below the directory.
  const known = await readlink(`/proc/self/fd/${descriptor}`).catch(() => null);
  if (known !== null) return isWithin(top, known) ? known : null;
  const real = await realPathBelow(root, path);
  const there = real === null ? null : await lstat(real).catch(() => null);
  const { dev, ino } = fs.fstatSync(descriptor);
  return there?.dev === dev && there.ino === ino ? real : null;
}

let writeRoots: readonly string[] | null = null;

/** From now on, `writeFileDurably` and `requireWriteRoot` refuse files that do not lie below these directories. Null: they may lie anywhere. */
export function confineWrites(roots: readonly string[] | null): void {
  writeRoots = roots;
}

/** Throws a system error, `EXDEV`, for a file that was opened to be written and lies elsewhere than `confineWrites` allows. */
export async function requireWriteRoot(descriptor: number, path: string): Promise<void> {
  if (writeRoots === null) return;
  for (const root of writeRoots)
    if ((await openPathBelow(root, descriptor, path).catch(() => null)) !== null) return;
  const facts = { code: "EXDEV", syscall: "open", path };
  throw Object.assign(new Error(`EXDEV: leads out, open '${path}'`), facts);
}

/** Removes a directory that was made elsewhere than `confineWrites` allows, and throws as `requireWriteRoot` does. */
async function requireMadeBelow(path: string): Promise<void> {
  // Windows opens no directory.
  if (writeRoots === null || process.platform === "win32") return;
  // One of these directories itself, or above it.
  if (writeRoots.some((root) => isWithin(path, root))) return;
  const directory = await open(path, "r");
  try {
    await requireWriteRoot(directory, path);
  } catch (error) {
    await rmdir(path).catch(() => {});
    throw error;
  } finally {
    fs.closeSync(directory);
  }
}

/** Appends to a file, and makes a missing one. Throws as `requireWriteRoot` does, before anything is written. */
export async function appendText(path: string, text: string): Promise<void> {
  const file = await open(path, "a");
  try {
    await requireWriteRoot(file, path);
    await writeAll(file, text);
  } finally {
    fs.closeSync(file);
  }
}

/** Returns a path below the working directory relative to it, and any other path as it is. For messages. */
export function shownPath(cwd: string, path: string): string {
  return isWithin(cwd, path) ? relative(cwd, path) || path : path;
}

/**
 * Whether a path lies in one of these places, or is one of them. `real` has no links. A place is a file or a directory; it may be
 * missing, and links in its name are followed.
 */
export async function liesInOne(places: readonly string[], real: string): Promise<boolean> {
  for (const place of places) {
    const top = await realPathBelow(parse(place).root, place);
    if (top !== null && (real === top || real.startsWith(join(top, sep)))) return true;
  }
  return false;
}

const isLink = (path: string) =>
  lstat(path).then(
    (facts) => facts.isSymbolicLink(),
    () => false,
  );

/**
 * Opens a file for reading and returns its descriptor. Throws system errors: `EINVAL` for anything but a file or directory: a FIFO would wait
 * for a writer, and a device may never end.
 */
export function openRegularFile(path: string): number {
  const descriptor = fs.openSync(path, fs.constants.O_RDONLY | (fs.constants.O_NONBLOCK ?? 0));
  const facts = fs.fstatSync(descriptor);
  if (facts.isFile()) return descriptor;
  fs.closeSync(descriptor);
  const code = facts.isDirectory() ? "EISDIR" : "EINVAL";
  throw Object.assign(new Error(`${code}: not a file, open '${path}'`), { code, path });
}

/** Reads a whole file. Throws system errors: those of `openRegularFile`, and `EFBIG` for a file above `maxBytes`. */
export function readRegularFile(path: string, maxBytes: number): Buffer {
  const descriptor = openRegularFile(path);
  try {
    const { size } = fs.fstatSync(descriptor);
    if (size > maxBytes)
      throw Object.assign(new Error(`EFBIG: ${size} bytes, open '${path}'`), { code: "EFBIG", path });
    return fs.readFileSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

/** Reads a file in pieces, with the errors of `openRegularFile`. */
export async function* regularFilePieces(path: string): AsyncGenerator<Buffer> {
  yield* fs.createReadStream(path, { fd: openRegularFile(path) });
}

/** Returns a text that differs from that of any later file of the same name. Null when the file is missing. */
export function fileIdentity(path: string): string | null {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : `${stats.dev} ${stats.ino} ${stats.birthtimeNs}`;
}
