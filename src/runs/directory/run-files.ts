import { createHash, randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { lstat, open, readFile, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import type { z } from "zod";
import { removeFile, saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { HeaderReader, shownSize, sniffImageType } from "../../contract/image-formats.ts";
import { missingEnd } from "../../contract/image-structure.ts";
import {
  makeDirectory,
  openPathBelow,
  PARTIAL_SUFFIX,
  requireWriteRoot,
  syncDirectory,
  writeFileDurably,
} from "../../kernel/files.ts";
import { parseJson } from "../../kernel/json.ts";
import { createYield } from "../../kernel/pacing.ts";
import { IMAGES_FOLDER, VERSIONS_FOLDER } from "./names.ts";

export interface ResultFile {
  /** From the run's directory on, with `/`. */
  path: string;
  /** The index of the image within its item, from 0. Absent if all images of the item are here. */
  image_index?: number;
  /** The name inside `path`, when that is a ZIP that was kept. */
  entry?: string;
  sha256: string;
  bytes: number;
  mime_type: string;
  width: number | null;
  height: number | null;
  /** The image as the upstream sent it, when this one was converted from it. */
  original?: { path: string; sha256: string; bytes: number; mime_type: string };
}

/** A file that was made of a picture, in the results. */
export interface DerivedFile {
  /** From the directory of the prompt file on, with `/`. */
  path: string;
  sha256: string;
  width: number;
  height: number;
  bytes: number;
  /** The picture has fewer pixels than the file. */
  enlarged?: true | undefined;
  /** The content credentials (C2PA) of the picture are not in the file. */
  lost_credentials?: true | undefined;
}

/**
 * How files were checked: against a SHA-256 of the service, against the CRC-32 of a ZIP, or (null) only by their size and
 * their first bytes, when the service gives no hash.
 */
export type Verified = "sha256" | "crc32" | null;

/** A file on disk, or an image inside a kept ZIP, that was checked. */
export interface CheckedFile {
  file: ResultFile;
  verified: Verified;
}

/** The facts that the bytes of an image must match. Null: not known. */
interface Expected {
  sha256: string | null;
  bytes: number | null;
  crc32: number | null;
}

export const NOTHING_KNOWN: Expected = { sha256: null, bytes: null, crc32: null };

interface Placed {
  file: Omit<ResultFile, "path">;
  verified: Verified;
}

/** Bytes from a ZIP or from a file, as they come. */
type Bytes = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * Writes an image so that the target is only ever a whole, checked one: it is written under a temporary name, checked,
 * synced and renamed. `makeRoom` is called when it is checked, before it takes the name. Throws `VERIFY_FAILED` for wrong
 * bytes, `SAVE_FAILED` when the disk refuses. The caller must sync the directory, once for all its files.
 */
export async function writeVerified(
  bytes: Bytes,
  target: string,
  expected: Expected,
  name: string,
  makeRoom: () => Promise<void> = async () => {},
): Promise<Placed> {
  const temporary = join(
    dirname(target),
    `.${basename(target)}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}`,
  );
  await saving(target, () => makeDirectory(dirname(target)));
  const file = await saving(target, () => open(temporary, "wx"));
  try {
    let placed: Placed;
    try {
      await saving(target, () => requireWriteRoot(file.fd, temporary));
      placed = await inspect(bytes, expected, name, (chunk) => saving(target, () => file.appendFile(chunk)));
      await saving(target, () => file.sync());
    } finally {
      await file.close();
    }
    await makeRoom();
    await saving(target, () => rename(temporary, target));
    return placed;
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Reads an image to its end, gives each piece to `take`, and checks it. Throws `VERIFY_FAILED`. */
export async function inspect(
  bytes: Bytes,
  expected: Expected,
  name: string,
  take: (chunk: Uint8Array) => Promise<void> = async () => {},
): Promise<Placed> {
  const hash = createHash("sha256");
  const head = new HeaderReader();
  let size = 0;
  let crc = 0;
  for await (const chunk of readable(bytes, name)) {
    hash.update(chunk);
    crc = crc32(chunk, crc);
    size += chunk.length;
    if (expected.bytes !== null && size > expected.bytes)
      throw new ImgbatchError(
        "VERIFY_FAILED",
        `${name} has more than the ${expected.bytes} bytes that it should have.`,
      );
    head.write(chunk);
    await take(chunk);
  }
  const sha256 = hash.digest("hex");
  const header = head.read();
  const problem =
    mismatch(expected, { sha256, bytes: size, crc32: crc }) ??
    (header === null ? "is not a PNG, JPEG or WebP image" : null);
  if (problem !== null || header === null) throw new ImgbatchError("VERIFY_FAILED", `${name} ${problem}.`);
  const shown = shownSize(header);
  return {
    file: { sha256, bytes: size, mime_type: header.mimeType, width: shown.widthPx, height: shown.heightPx },
    verified: expected.sha256 !== null ? "sha256" : expected.crc32 !== null ? "crc32" : null,
  };
}

/** Turns an error of reading into `VERIFY_FAILED`: it is the fault of the source, not of the target disk. */
async function* readable(bytes: Bytes, name: string): AsyncGenerator<Uint8Array> {
  try {
    yield* bytes;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new ImgbatchError("VERIFY_FAILED", `${name} is damaged: ${reason}`, { cause });
  }
}

function mismatch(
  expected: Expected,
  found: { sha256: string; bytes: number; crc32: number },
): string | null {
  if (expected.bytes !== null && expected.bytes !== found.bytes) {
    return `has ${found.bytes} bytes, not the ${expected.bytes} that it should have`;
  }
  if (expected.sha256 !== null && expected.sha256 !== found.sha256)
    return "does not have the SHA-256 that it should have";
  if (expected.crc32 !== null && expected.crc32 !== found.crc32)
    return "does not have the CRC-32 that it should have";
  return null;
}

/** Returns the SHA-256 of a file; null when it cannot be read. */
export async function hashFile(path: string): Promise<string | null> {
  try {
    return (await readFacts(path, 0)).sha256;
  } catch {
    return null;
  }
}

const PIECE_BYTES = 256 * 1024;

/**
 * Returns SHA-256, size and the first `headBytes` bytes of a file of any size. Holds one piece (256 KiB) and these bytes
 * in memory. Throws the system's error, and `EXDEV` for a file that does not lie below `root` once it is open.
 */
export async function readFacts(
  path: string,
  headBytes: number,
  root?: string,
): Promise<{ sha256: string; bytes: number; head: Buffer }> {
  const hash = createHash("sha256");
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  const head: Buffer[] = [];
  let bytes = 0;
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    // A FIFO or a device may never end.
    if (!(await file.stat()).isFile()) throw new Error(`${path} is not a file`);
    if (root !== undefined && (await openPathBelow(root, file.fd, path)) === null)
      throw Object.assign(new Error(`${path} leads out of ${root}`), { code: "EXDEV" });
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, PIECE_BYTES, null);
      if (bytesRead === 0) break;
      hash.update(piece.subarray(0, bytesRead));
      if (bytes < headBytes)
        head.push(Buffer.from(piece.subarray(0, Math.min(bytesRead, headBytes - bytes))));
      bytes += bytesRead;
    }
  } finally {
    await file.close();
  }
  return { sha256: hash.digest("hex"), bytes, head: Buffer.concat(head) };
}

/** Whether the file on disk is the one that the results name, by its hash: dates and sizes prove nothing. */
export async function isIntact(dir: string, file: ResultFile): Promise<boolean> {
  if (file.entry !== undefined || !isImagePath(file.path)) return false;
  return (await hashFile(join(dir, file.path))) === file.sha256;
}

/** Whether a file is an image from its first byte to its last, whatever it shows. */
export async function isWholeImage(path: string): Promise<boolean> {
  const bytes = await readFile(path).catch(() => null);
  const type = bytes && sniffImageType(bytes);
  return bytes !== null && type !== null && missingEnd(bytes, type) === null;
}

/** Whether a path is a name directly below `images/`. Other paths are not used, since a results file can be edited. */
export function isImagePath(path: unknown): boolean {
  return isPathIn(IMAGES_FOLDER, path);
}

/** Whether a path is a name directly below `versions/`. */
export function isVersionPath(path: unknown): boolean {
  return isPathIn(VERSIONS_FOLDER, path);
}

function isPathIn(folder: string, path: unknown): boolean {
  if (typeof path !== "string" || !path.startsWith(`${folder}/`)) return false;
  const name = path.slice(folder.length + 1);
  return /^[^/\\\0]+$/.test(name) && !/^\.{1,2}$/.test(name);
}

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
    await removeFile(from);
    return true;
  }
  await saving(to, async () => {
    await rename(from, to);
    await syncDirectory(dirname(to));
  });
  return false;
}

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
async function* linePieces(values: Iterable<unknown>): AsyncGenerator<string, void, undefined> {
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

/** Reads a line of a file that this program wrote; null if it is not JSON of this shape. */
export function readJsonLine<T>(text: string, shape: z.ZodType<T>): T | null {
  try {
    return shape.parse(parseJson(text));
  } catch {
    return null;
  }
}
