import { randomBytes } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatBytes } from "../../kernel/text.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import { imageInDraft, type SentImage } from "../images/sent-image.ts";
import type { BlobStore, LentDraft } from "../ports/blob-store.ts";
import type { FileRecord, Repositories, Stores, Transaction } from "../ports/stores.ts";
import type { LinkedImageRecord } from "../records.ts";
import { KEPT } from "../retention.ts";

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

function nameTaken(id: string): ImgbatchError {
  return new ImgbatchError("FILE_NAME_TAKEN", `file.name: this key has a file files/${id} already`, {
    param: "file.name",
  });
}

/** Adds a file to those of its key, which hold `maxBytes` at most. Throws `FILE_NAME_TAKEN` and `FILE_QUOTA_EXCEEDED`. */
export async function insertFile(tx: Transaction, file: FileRecord, maxBytes: number): Promise<void> {
  const { apiKeyId, id, sizeBytes, createdAtMs } = file;
  await tx.lock("key", apiKeyId);
  if (await tx.files.find(apiKeyId, id)) throw nameTaken(id);
  const stored = await tx.files.bytesOf(apiKeyId, createdAtMs);
  if (stored + sizeBytes > maxBytes) throw quotaExceeded(maxBytes);
  await tx.files.insert(file);
}

export function quotaExceeded(maxBytes: number): ImgbatchError {
  const message = `The files and uploads of this key would take more than ${formatBytes(maxBytes)}; delete some.`;
  return new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
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

const { prefix: PREFIX, forMs: KEPT_MS } = KEPT.links;

interface Deps {
  stores: Stores;
  blobs: BlobStore;
}

/**
 * Stores an image that can be fetched by its name for an hour. Returns the name: 128 random bits, and the ending of
 * its type. Anyone with the name can see the image, so it must not be logged. Throws `StorageUnavailable`.
 */
export async function linkImage(
  { stores, blobs, clock }: Deps & { clock: Clock },
  { bytes, mimeType }: { bytes: Buffer; mimeType: ImageMimeType },
): Promise<string> {
  const name = `${randomBytes(16).toString("hex")}.${IMAGE_EXTENSIONS[mimeType]}`;
  const id = sha256Hex(name);
  await blobs.put(PREFIX + id, bytes);
  const expiresAtMs = clock.nowMs() + KEPT_MS;
  const image = { id, mimeType, sizeBytes: bytes.length, expiresAtMs };
  await commitOrUndo(
    () => stores.write((tx) => tx.linkedImages.insert(image)),
    () => blobs.delete(PREFIX + id),
  );
  return name;
}

/** The image of a name, with the key of its blob; null when there is none, or it has expired. */
export async function findLinkedImage(
  { stores, clock }: { stores: Stores; clock: Clock },
  name: string,
): Promise<(LinkedImageRecord & { blobKey: string }) | null> {
  const image = await stores.read.linkedImages.find(sha256Hex(name));
  return image !== null && image.expiresAtMs > clock.nowMs()
    ? { ...image, blobKey: PREFIX + image.id }
    : null;
}
