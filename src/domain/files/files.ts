import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { eachDue, type SweepDeps } from "../each-due.ts";
import { imageInDraft, type SentImage } from "../images/sent-image.ts";
import type { BlobStore, LentDraft } from "../ports/blob-store.ts";
import type { FileRecord, Repositories, Stores } from "../ports/stores.ts";

/** Where the bytes of uploaded files are, in the blob store. */
export const FILES_PREFIX = "files/";

/** The id in `files/{id}`, in `{id}` alone, and in every URL that ends in `/files/{id}`; null in any other text. */
export function fileIdOf(name: string): string | null {
  return /(?:^|(?:^|\/)files\/)([a-z0-9-]+)$/.exec(name)?.[1] ?? null;
}

/**
 * The file of a key that a text names: see `fileIdOf`. The host of a URL does not matter, and nothing is fetched from it.
 * Null when the key has no such file, or had it until it expired.
 */
export async function findFile(
  repositories: Repositories,
  apiKeyId: string,
  name: string,
  nowMs: number,
): Promise<FileRecord | null> {
  const id = fileIdOf(name);
  const file = id === null ? null : await repositories.files.find(apiKeyId, id);
  return file !== null && file.expiresAtMs > nowMs ? file : null;
}

/** Finds the file that a `fileUri` names, as an input image; null when the key has no such file. */
export type FindFileImage = (fileUri: string) => Promise<SentImage | null>;

/** Files of a key as the input images of one request. */
interface FileImages {
  find: FindFileImage;
  /** Must be called when the request has ended. */
  release(): Promise<void>;
}

/** The images keep their bytes until they are released, even when a file is deleted meanwhile. */
export function fileImagesOf(
  { stores, blobs, clock }: { stores: Stores; blobs: BlobStore; clock: Clock },
  apiKeyId: string,
): FileImages {
  const drafts: LentDraft[] = [];
  const known = new Map<string, SentImage>();
  return {
    find: async (fileUri) => {
      const file = await findFile(stores.read, apiKeyId, fileUri, clock.nowMs());
      if (file === null) return null;
      const { blobKey, sizeBytes, sha256 } = file;
      const earlier = known.get(blobKey);
      if (earlier) return earlier;
      const draft = await blobs.borrow(blobKey);
      if (draft === null) return null;
      drafts.push(draft);
      const image = imageInDraft(draft, { sizeBytes, sha256 });
      known.set(blobKey, image);
      return image;
    },
    release: async () => {
      // The next start removes what cannot be removed now.
      await Promise.allSettled(drafts.map((draft) => draft.discard()));
    },
  };
}

/** Hides a file from everybody, and removes it. If it cannot be removed now, the sweep removes it. */
export async function deleteFile(
  deps: { stores: Stores; blobs: BlobStore },
  { blobKey }: FileRecord,
): Promise<void> {
  await deps.stores.write((tx) => tx.files.setExpiry(blobKey, 0));
  await purgeFile(deps, blobKey).catch(() => {});
}

/** Removes the bytes, then the record that names them. */
async function purgeFile(
  { stores, blobs }: { stores: Stores; blobs: BlobStore },
  blobKey: string,
): Promise<void> {
  await blobs.delete(blobKey);
  await stores.write((tx) => tx.files.remove(blobKey));
}

/** How long an uploaded file is kept. */
export const FILE_RETENTION_MS = FIXED_LIMITS.fileHours * 3_600_000;

/**
 * Removes the files that expire by `dueMs`, and those that were deleted, with their bytes. One failure does not stop the
 * others: the errors are returned, and the next sweep tries again.
 */
export async function sweepFiles(deps: SweepDeps, dueMs: number): Promise<unknown[]> {
  const failures: unknown[] = [];
  for await (const { blobKey } of eachDue((page) => deps.stores.read.files.due(dueMs, page), deps.ending)) {
    await purgeFile(deps, blobKey).catch((error) => failures.push(error));
  }
  return failures;
}

/** Removes bytes of uploads that a process has stored but not recorded. Younger ones may be about to be recorded. */
export async function removeUnknownFiles(
  { stores, blobs }: { stores: Stores; blobs: BlobStore },
  olderThanMs: number,
): Promise<void> {
  const known = new Set(await stores.read.files.blobKeys());
  for (const { key, ageMs } of await blobs.list(FILES_PREFIX)) {
    if (ageMs >= olderThanMs && !known.has(key)) await blobs.delete(key);
  }
}

/** Finds uploaded files whose bytes are missing or have another size than recorded. Returns a line for each. */
export async function fileProblems(stores: Stores, blobs: BlobStore): Promise<string[]> {
  const problems: string[] = [];
  const files = eachDue((page) => stores.read.files.due(Number.MAX_SAFE_INTEGER, page));
  for await (const file of files) problems.push(...(await problemOf(stores, blobs, file)));
  return problems;
}

async function problemOf(stores: Stores, blobs: BlobStore, file: FileRecord): Promise<string[]> {
  const { id, apiKeyId, blobKey, sizeBytes } = file;
  const size = await blobs.sizeOf(blobKey);
  if (size === sizeBytes) return [];
  // The bytes of a file are removed before its row.
  const now = await stores.read.files.find(apiKeyId, id);
  if (now?.blobKey !== blobKey || now.expiresAtMs !== file.expiresAtMs || file.expiresAtMs === 0) return [];
  return [`file ${id} of key ${apiKeyId}: ${blobKey} is ${size === null ? "missing" : "damaged"}`];
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

/** A file that the service makes when it is downloaded: the results of a batch job. */
export interface GeneratedFile {
  sizeBytes: number;
  /** Changes whenever a byte does. */
  etag: string;
  mimeType: string;
  createdAtMs: number;
  /** When it is deleted; null when it is kept. */
  expiresAtMs: number | null;
  /** Bytes `start` to `end`, inclusive. Each part is valid until the next one is asked for. */
  open(range: { start: number; end: number }): AsyncIterable<Buffer>;
}

/**
 * Finds a generated file of a key by its id, such as `batch-…`; null when there is none. Uploaded files of the same id
 * come first.
 */
export type FindGeneratedFile = (apiKeyId: string, id: string) => Promise<GeneratedFile | null>;
