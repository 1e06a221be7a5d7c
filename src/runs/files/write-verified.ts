import { createHash, randomBytes } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { HEADER_BYTES, readImageHeader } from "../../contract/images/image-header.ts";
import { PARTIAL_SUFFIX } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import type { ResultFile, Verified } from "../directory/results-file.ts";

/** The facts that the bytes of an image must match. Null: not known. */
export interface Expected {
  sha256: string | null;
  bytes: number | null;
  crc32: number | null;
}

export interface Placed {
  file: Omit<ResultFile, "path">;
  verified: Verified;
}

/** Bytes from a ZIP or from a file, as they come. */
export type Bytes = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * Writes an image so that the target is only ever a whole, checked one: it is written under a temporary name, checked,
 * synced and renamed. Throws `VERIFY_FAILED` for wrong bytes, `SAVE_FAILED` when the disk refuses. The caller must sync
 * the directory, once for all its files.
 */
export async function writeVerified(
  bytes: Bytes,
  target: string,
  expected: Expected,
  name: string,
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
      placed = await inspect(bytes, expected, name, (chunk) => saving(target, () => file.appendFile(chunk)));
      await saving(target, () => file.sync());
    } finally {
      await file.close();
    }
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
  const head: Uint8Array[] = [];
  let headBytes = 0;
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
    if (headBytes < HEADER_BYTES) {
      head.push(chunk);
      headBytes += chunk.length;
    }
    await take(chunk);
  }
  const sha256 = hash.digest("hex");
  const header = readImageHeader(Buffer.concat(head));
  const problem =
    mismatch(expected, { sha256, bytes: size, crc32: crc }) ??
    (header === null ? "is not a PNG, JPEG or WebP image" : null);
  if (problem !== null || header === null) throw new ImgbatchError("VERIFY_FAILED", `${name} ${problem}.`);
  return {
    file: { sha256, bytes: size, mime_type: header.mimeType, width: header.widthPx, height: header.heightPx },
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
