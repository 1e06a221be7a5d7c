import { randomInt } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { UploadRecord } from "../ports/shared-records.ts";
import type { Stores } from "../ports/stores.ts";
import { purgeFile } from "./files.ts";

/** How much a key may upload. */
export interface UploadLimits extends Pick<Limits, "uploadBytes" | "uploadBytesPerKey"> {
  openUploadsPerKey: number;
}

const ID_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH = 12;

/** 12 lower-case letters and digits: client libraries cut an id at any other character. */
export function newFileId(): string {
  return Array.from({ length: ID_LENGTH }, () => ID_CHARS[randomInt(ID_CHARS.length)]).join("");
}

/** Throws `FILE_NAME_TAKEN` when the key has a file of this id. One that has expired makes way. */
export async function refuseTakenName(
  deps: { stores: Stores; blobs: BlobStore; clock: Clock },
  apiKeyId: string,
  id: string,
): Promise<void> {
  const known = await deps.stores.read.files.find(apiKeyId, id);
  if (known === null) return;
  if (known.expiresAtMs > deps.clock.nowMs()) throw nameTaken(id);
  await purgeFile(deps, known.blobKey);
}

export function nameTaken(id: string): ImgbatchError {
  return new ImgbatchError("FILE_NAME_TAKEN", `file.name: this key has a file files/${id} already`, {
    param: "file.name",
  });
}

/** Bytes of the files that a key has now. */
export function storedBytes(deps: { stores: Stores; clock: Clock }, apiKeyId: string): Promise<number> {
  return deps.stores.read.files.bytesOf(apiKeyId, deps.clock.nowMs());
}

export function fileTooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The file is larger than ${formatBytes(maxBytes)}.`);
}

export function quotaExceeded(maxBytes: number): ImgbatchError {
  const message = `The files and uploads of this key would take more than ${formatBytes(maxBytes)}; delete some.`;
  return new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
}

type UnfinishedUpload = Pick<UploadRecord, "receivedBytes" | "announcedBytes">;

/** The bytes that unfinished uploads have, or will have as far as they were announced. */
export function bytesOfUploads(uploads: readonly UnfinishedUpload[]): number {
  return uploads.reduce(
    (sum, { receivedBytes, announcedBytes }) => sum + Math.max(receivedBytes, announcedBytes ?? 0),
    0,
  );
}

/**
 * Throws `FILE_QUOTA_EXCEEDED` when a key with these `open` uploads may not begin another one. `otherBytes`: what the key has
 * stored, and what the new upload announces.
 */
export function refuseBeyondQuota(
  { openUploadsPerKey: most, uploadBytesPerKey }: UploadLimits,
  open: readonly UnfinishedUpload[],
  otherBytes: number,
): void {
  if (open.length >= most) {
    const message = `This key has ${most} open uploads; finish or cancel one of them.`;
    throw new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
  }
  if (bytesOfUploads(open) + otherBytes > uploadBytesPerKey) throw quotaExceeded(uploadBytesPerKey);
}

/** An error about one field or header of an upload. */
export function argumentError(param: string, problem: string): ImgbatchError {
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `${param}: ${problem}`, { param });
}
