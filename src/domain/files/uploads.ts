import { createHash, type Hash, randomBytes } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, type ImageMimeType } from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatBytes } from "../../kernel/text.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import { imageInDraft, type SentImage } from "../images/sent-image.ts";
import type { BlobDraft, BlobStore, LentDraft } from "../ports/blob-store.ts";
import type {
  FileFacts,
  FileRecord,
  Repositories,
  Stores,
  Transaction,
  UploadRecord,
} from "../ports/stores.ts";
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
async function refuseTakenName(
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
async function insertFile(tx: Transaction, file: FileRecord, maxBytes: number): Promise<void> {
  const { apiKeyId, id, sizeBytes, createdAtMs } = file;
  await tx.lock("key", apiKeyId);
  if (await tx.files.find(apiKeyId, id)) throw nameTaken(id);
  const stored = await tx.files.bytesOf(apiKeyId, createdAtMs);
  if (stored + sizeBytes > maxBytes) throw quotaExceeded(maxBytes);
  await tx.files.insert(file);
}

function quotaExceeded(maxBytes: number): ImgbatchError {
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

/** An upload that nobody goes on with ends after an hour. A finished one is kept that long for a client that lost the answer. */
const IDLE_MS = 3_600_000;

/** What an upload knows of the others. */
interface UploadContext {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  /** How much a key may upload. */
  limits: Pick<Limits, "uploadBytes" | "uploadBytesPerKey"> & { openUploadsPerKey: number };
  /** The uploads that a request of this process brings bytes to, by the id of their row. */
  active: Map<string, Upload>;
}

/**
 * The uploads that are on their way. What each request has brought is stored, so that any process can take the next chunk, also
 * after a restart.
 */
export class Uploads {
  readonly #context: UploadContext;

  constructor(deps: Omit<UploadContext, "limits" | "active">, limits: UploadContext["limits"]) {
    this.#context = { ...deps, limits, active: new Map() };
  }

  /**
   * Begins an upload. `announcedBytes` is the size of the file; null when the caller does not say it. Throws
   * `REQUEST_TOO_LARGE`, `FILE_QUOTA_EXCEEDED` and `FILE_NAME_TAKEN`.
   */
  async begin(apiKeyId: string, facts: FileFacts, announcedBytes: number | null): Promise<Upload> {
    const { stores, clock, limits } = this.#context;
    const { uploadBytes, uploadBytesPerKey, openUploadsPerKey } = limits;
    if ((announcedBytes ?? 0) > uploadBytes) throw fileTooLarge(uploadBytes);
    if (facts.id !== null) await refuseTakenName(this.#context, apiKeyId, facts.id);
    const id = randomBytes(16).toString("hex");
    const nowMs = clock.nowMs();
    const stored = await stores.read.files.bytesOf(apiKeyId, nowMs);
    const progress = { receivedBytes: 0, parts: [], fileId: null, touchedAtMs: nowMs };
    const record: UploadRecord = { id: sha256Hex(id), apiKeyId, facts, announcedBytes, ...progress };
    await stores.write(async (tx) => {
      await tx.lock("key", apiKeyId);
      const all = await tx.uploads.openOfKey(apiKeyId);
      const open = all.filter((each) => !this.#isIdle(each));
      if (open.length >= openUploadsPerKey) {
        const message = `This key has ${openUploadsPerKey} open uploads; finish or cancel one of them.`;
        throw new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
      }
      const bytes = bytesOfUploads(open, this.#context.active) + stored + (announcedBytes ?? 0);
      if (bytes > uploadBytesPerKey) throw quotaExceeded(uploadBytesPerKey);
      await tx.uploads.insert(record);
    });
    return new Upload(this.#context, id, record, null);
  }

  /** The upload that is open, or was finished within the last hour. Throws `FILE_UPLOAD_NOT_FOUND`. */
  async find(id: string): Promise<Upload> {
    const { stores } = this.#context;
    const record = await stores.read.uploads.find(sha256Hex(id));
    if (record === null || this.#isIdle(record)) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    const file = await fileOf(stores, record);
    if (record.fileId !== null && file === null) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    return new Upload(this.#context, id, record, file);
  }

  /** Ends the uploads that nobody has gone on with for an hour. */
  async endIdle(): Promise<void> {
    const { stores, clock } = this.#context;
    for (const record of await stores.read.uploads.idleSince(clock.nowMs() - IDLE_MS))
      if (this.#isIdle(record)) await forget(this.#context, record.id);
  }

  #isIdle({ id, touchedAtMs }: UploadRecord): boolean {
    const { clock, active } = this.#context;
    return !active.has(id) && clock.nowMs() - touchedAtMs >= IDLE_MS;
  }
}

/**
 * An upload as one request sees it. Requests bring it in chunks; one of them has the upload at a time. All methods wait for
 * the step that is running. `add` and `finish` throw `FILE_UPLOAD_TAKEN_OVER` once another request has it.
 */
export class Upload {
  /** 128 random bits: whoever knows them may go on with the upload. Must not be logged. */
  readonly id: string;
  readonly apiKeyId: string;
  /** May be set until the upload is finished. */
  facts: FileFacts;
  receivedBytes: number;
  readonly #context: UploadContext;
  /** The upload as the database has it. */
  #record: UploadRecord;
  /** Null until the upload is finished. */
  file: FileRecord | null;
  /** The bytes that this request brought. Null before its chunk begins and once they are stored. */
  #fresh: { draft: BlobDraft; hash: Hash } | null = null;
  /** Bytes of the key's files, and its other unfinished uploads, when the chunk began. */
  #ofKey: { storedBytes: number; uploads: readonly UploadRecord[] } = { storedBytes: 0, uploads: [] };
  /** Where the chunk of this request ends that has come so far; null without one. */
  #chunkEnd: number | null = null;
  #isCancelled = false;
  #last: Promise<unknown> = Promise.resolve();

  constructor(context: UploadContext, id: string, record: UploadRecord, file: FileRecord | null) {
    this.#context = context;
    this.id = id;
    this.apiKeyId = record.apiKeyId;
    this.facts = record.facts;
    this.#record = record;
    this.file = file;
    this.receivedBytes =
      file?.sizeBytes ?? context.active.get(record.id)?.receivedBytes ?? record.receivedBytes;
  }

  get state(): "active" | "final" | "cancelled" {
    if (this.#isCancelled) return "cancelled";
    return this.file === null ? "active" : "final";
  }

  /**
   * Begins a chunk: its first byte is the one at `offset`. Bytes that were received before are skipped, so a chunk may come
   * again. The request that had the upload before loses it. `sizeBytes`: the length of the chunk, 0 when it is unknown.
   * Throws `REALTIME_INVALID_ARGUMENT` for a gap, `REQUEST_TOO_LARGE`, `FILE_QUOTA_EXCEEDED`, `FILE_UPLOAD_NOT_FOUND`.
   */
  open(offset: number | null, sizeBytes: number): Promise<this> {
    return this.#inOrder(async () => {
      await this.#takeOver();
      await this.#begin(offset, sizeBytes).catch((error) => {
        this.#leave();
        throw error;
      });
      return this;
    });
  }

  /** Stores the next bytes of the chunk. Throws the errors of `open`, and those of a disk that refuses. */
  add(bytes: Buffer): Promise<void> {
    return this.#inOrder(async () => {
      const end = this.#requireChunk();
      await this.#store(bytes.subarray(Math.min(bytes.length, this.receivedBytes - end)));
      this.#chunkEnd = end + bytes.length;
    });
  }

  /**
   * Makes the upload a file, durably. Throws `REALTIME_INVALID_ARGUMENT` when it is empty, has another size than
   * announced or more bytes than this chunk ends with, `FILE_NAME_TAKEN`, `FILE_QUOTA_EXCEEDED`, and `StorageUnavailable`;
   * then a later chunk can try again.
   */
  finish(): Promise<FileRecord> {
    return this.#inOrder(() => this.#finish(this.#requireChunk()));
  }

  /** The request has ended. The bytes that it has brought stay. */
  close(): Promise<void> {
    return this.#inOrder(async () => {
      if (this.#chunkEnd !== null) await this.#endChunk().finally(() => this.#leave());
    });
  }

  /** Ends the upload and removes its bytes. Does nothing to a finished one. */
  cancel(): Promise<void> {
    return this.#inOrder(async () => {
      if (this.state !== "active") return;
      await this.#takeOver();
      await this.#end();
    });
  }

  async #begin(offset: number | null, sizeBytes: number): Promise<void> {
    const { stores, blobs, clock } = this.#context;
    if (this.state !== "active") throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    const at = offset ?? this.receivedBytes;
    if (at > this.receivedBytes) {
      const problem = `is ${at}, but ${this.receivedBytes} bytes were received: send the bytes from there on`;
      throw argumentError("offset", problem);
    }
    const storedBytes = await stores.read.files.bytesOf(this.apiKeyId, clock.nowMs());
    const open = await stores.read.uploads.openOfKey(this.apiKeyId);
    this.#ofKey = { storedBytes, uploads: open.filter(({ id }) => id !== this.#record.id) };
    await this.#refuseTooMany(at + sizeBytes - this.receivedBytes);
    this.#fresh = { draft: blobs.draft(), hash: createHash("sha256") };
    this.#chunkEnd = at;
  }

  async #store(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    if (this.#fresh === null) throw argumentError("body", "the file has all its bytes already: finalize it");
    await this.#refuseTooMany(bytes.length);
    await this.#fresh.draft.write(bytes).catch(async (error) => {
      // A part of the bytes may be on the disk: the upload cannot go on.
      await this.#end();
      throw error;
    });
    this.#fresh.hash.update(bytes);
    this.receivedBytes += bytes.length;
  }

  async #finish(end: number): Promise<FileRecord> {
    const { receivedBytes } = this;
    const { announcedBytes } = this.#record;
    if (end !== receivedBytes) {
      const problem = `the bytes of this request end at ${end}, but ${receivedBytes} bytes were received before`;
      throw argumentError("offset", problem);
    }
    if (receivedBytes === 0) throw argumentError("body", "the file is empty");
    if (announcedBytes !== null && receivedBytes !== announcedBytes) {
      const problem = `${announcedBytes} bytes were announced, and ${receivedBytes} were received`;
      throw argumentError("announcedBytes", problem);
    }
    const { blobs } = this.#context;
    const blobKey = `${KEPT.files.prefix}${randomBytes(16).toString("hex")}`;
    const sha256 = await this.#storeAs(blobKey);
    const undo = async () => {
      // A later chunk finishes the upload without sending the bytes again.
      await this.#keepPart(await blobs.borrow(blobKey)).finally(() => blobs.delete(blobKey));
    };
    this.file = await commitOrUndo(() => this.#recordFile(blobKey, sha256), undo);
    if (this.#record.parts.length > 0) await blobs.deleteAll(prefixOf(this.#record.id)).catch(() => {});
    return this.file;
  }

  /** Makes all bytes one blob, and returns their SHA-256. Those of a single request are not copied. */
  async #storeAs(blobKey: string): Promise<string> {
    const { blobs } = this.#context;
    const fresh = this.#fresh;
    if (fresh !== null && this.#record.receivedBytes === 0) {
      this.#fresh = null;
      await fresh.draft.keepAs(blobKey);
      return fresh.hash.digest("hex");
    }
    await this.#keepPart(fresh?.draft ?? null);
    const draft = blobs.draft();
    const hash = createHash("sha256");
    try {
      for (const key of this.#record.parts) {
        const stream = await blobs.open(key);
        if (stream === null) throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
        for await (const bytes of stream) {
          await draft.write(bytes);
          hash.update(bytes);
        }
      }
      await draft.keepAs(blobKey);
    } catch (error) {
      await draft.discard();
      throw error;
    }
    return hash.digest("hex");
  }

  async #recordFile(blobKey: string, sha256: string): Promise<FileRecord> {
    const { apiKeyId, facts, receivedBytes: sizeBytes } = this;
    const { stores, clock, limits } = this.#context;
    const { displayName, mimeType, purpose = null, keptMs = KEPT.files.forMs } = facts;
    // Client libraries cut an id at any character but lower-case letters and digits.
    const id = facts.id ?? randomBytes(6).toString("hex");
    const nowMs = clock.nowMs();
    await refuseTakenName(this.#context, apiKeyId, id);
    const file = { id, apiKeyId, displayName, mimeType, purpose, sizeBytes, sha256, blobKey };
    const record = { ...file, createdAtMs: nowMs, expiresAtMs: nowMs + keptMs };
    await stores.write(async (tx) => {
      await insertFile(tx, record, limits.uploadBytesPerKey);
      const { isChanged } = await tx.uploads.change(this.#record, { fileId: id, touchedAtMs: nowMs });
      if (!isChanged) throw takenOver();
    });
    return record;
  }

  async #endChunk(): Promise<void> {
    if (this.#chunkEnd === null) return;
    this.#chunkEnd = null;
    if (this.state === "active") await this.#keepPart(this.#fresh?.draft ?? null);
  }

  /** Stores what this request has brought, for whoever brings the next bytes. */
  async #keepPart(draft: LentDraft | null): Promise<void> {
    this.#fresh = null;
    if (draft === null) return;
    const { stores, blobs, clock } = this.#context;
    const { receivedBytes } = this;
    if (receivedBytes === this.#record.receivedBytes) return draft.discard();
    const key = `${prefixOf(this.#record.id)}${randomBytes(16).toString("hex")}`;
    await draft.keepAs(key);
    const change = { receivedBytes, parts: [...this.#record.parts, key], touchedAtMs: clock.nowMs() };
    await commitOrUndo(
      async () => {
        const { isChanged } = await stores.write((tx) => tx.uploads.change(this.#record, change));
        if (!isChanged) throw takenOver();
      },
      () => blobs.delete(key),
    );
    this.#record = { ...this.#record, ...change };
  }

  /** Takes the upload over from another request of this process. The bytes which that request brought stay. */
  async #takeOver(): Promise<void> {
    const { active, stores } = this.#context;
    const before = active.get(this.#record.id);
    active.set(this.#record.id, this);
    if (before !== undefined) {
      const ended = before === this ? this.#endChunk() : before.#inOrder(() => before.#endChunk());
      // The client sends again what could not be stored.
      await ended.catch(() => {});
    }
    const record = await stores.read.uploads.find(this.#record.id);
    this.#isCancelled = record === null;
    if (record === null) return;
    this.#record = record;
    this.file = await fileOf(stores, record);
    this.receivedBytes = this.file?.sizeBytes ?? record.receivedBytes;
  }

  #leave(): void {
    const { active } = this.#context;
    if (active.get(this.#record.id) === this) active.delete(this.#record.id);
  }

  /** Above the limit of a file the upload ends. Above the quota of the key only the chunk fails: there may be space later. */
  async #refuseTooMany(moreBytes: number): Promise<void> {
    const {
      limits: { uploadBytes, uploadBytesPerKey },
      active,
    } = this.#context;
    const bytes = this.receivedBytes + moreBytes;
    if (bytes > uploadBytes) {
      await this.#end();
      throw fileTooLarge(uploadBytes);
    }
    const { storedBytes, uploads } = this.#ofKey;
    if (storedBytes + bytesOfUploads(uploads, active) + bytes > uploadBytesPerKey)
      throw quotaExceeded(uploadBytesPerKey);
  }

  #requireChunk(): number {
    if (this.state !== "active") throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
    if (this.#chunkEnd === null) throw takenOver();
    return this.#chunkEnd;
  }

  async #end(): Promise<void> {
    if (this.state !== "active") return;
    this.#isCancelled = true;
    this.#leave();
    // What cannot be removed now is removed with the idle uploads, and the draft at the next start.
    await this.#fresh?.draft.discard().catch(() => {});
    this.#fresh = null;
    await forget(this.#context, this.#record.id).catch(() => {});
  }

  #inOrder<T>(step: () => Promise<T>): Promise<T> {
    const result = this.#last.then(step);
    this.#last = result.catch(() => {});
    return result;
  }
}

async function fileOf({ read }: Stores, { apiKeyId, fileId }: UploadRecord): Promise<FileRecord | null> {
  return fileId === null ? null : read.files.find(apiKeyId, fileId);
}

async function forget(deps: UploadContext, rowId: string): Promise<void> {
  await deps.blobs.deleteAll(prefixOf(rowId)).catch(() => {});
  await deps.stores.write((tx) => tx.uploads.remove(rowId));
}

/** Where the bytes of an unfinished upload are kept: a blob for each request. */
const prefixOf = (rowId: string) => `uploads/${rowId}/`;

/** The bytes that unfinished uploads have, or will have as far as they were announced. */
function bytesOfUploads(uploads: readonly UploadRecord[], active: ReadonlyMap<string, Upload>): number {
  return uploads.reduce((sum, { id, receivedBytes, announcedBytes }) => {
    const received = active.get(id)?.receivedBytes ?? receivedBytes;
    return sum + Math.max(received, announcedBytes ?? 0);
  }, 0);
}

function fileTooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The file is larger than ${formatBytes(maxBytes)}.`);
}

const takenOver = () => new ImgbatchError("FILE_UPLOAD_TAKEN_OVER");

/** An error about one part of a request: its `offset`, `announcedBytes` or `body`. */
function argumentError(param: string, problem: string): ImgbatchError {
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `${param}: ${problem}`, { param });
}
