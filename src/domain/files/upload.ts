import { createHash, type Hash, randomBytes, randomInt } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatBytes } from "../../kernel/text.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import type { BlobDraft, BlobStore, LentDraft } from "../ports/blob-store.ts";
import type { FileFacts, FileRecord, Stores, UploadRecord } from "../ports/stores.ts";
import { KEPT } from "../retention.ts";
import { nameTaken, refuseTakenName } from "./files.ts";

/** Where the bytes of unfinished uploads are kept: a blob for each request. */
const PARTS_PREFIX = "uploads/";
const ID_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH = 12;

/** How much a key may upload. */
interface UploadLimits extends Pick<Limits, "uploadBytes" | "uploadBytesPerKey"> {
  openUploadsPerKey: number;
}

interface UploadDeps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
}

/** What an upload knows of the others. */
export interface UploadContext extends UploadDeps {
  limits: UploadLimits;
  /** The uploads that a request of this process brings bytes to, by the id of their row. */
  active: Map<string, Upload>;
}

/** A part of a file that one request brings. */
export interface Chunk {
  /**
   * Stores the next bytes. Throws `FILE_UPLOAD_TAKEN_OVER`, and the errors of `Upload.open` and of a disk that refuses.
   */
  add(bytes: Buffer): Promise<void>;
  /**
   * Makes the upload a file, durably. Throws `REALTIME_INVALID_ARGUMENT` when it is empty, has another size than
   * announced or more bytes than this chunk ends with, `FILE_NAME_TAKEN`, `FILE_QUOTA_EXCEEDED`, and `StorageUnavailable`; then
   * a later chunk can try again.
   */
  finish(): Promise<FileRecord>;
  /** The request has ended. The bytes that it has brought stay. */
  close(): Promise<void>;
}

/**
 * An upload as one request sees it. Requests bring it in chunks; one of them has the upload at a time. All methods wait for
 * the step that is running.
 */
export class Upload {
  /** 128 random bits: whoever knows them may go on with the upload. Must not be logged. */
  readonly id: string;
  readonly apiKeyId: string;
  /** May be set until the upload is finished. */
  facts: FileFacts;
  receivedBytes: number;
  state: "active" | "final" | "cancelled";
  readonly #context: UploadContext;
  /** The upload as the database has it. */
  #record: UploadRecord;
  #file: FileRecord | null;
  /** The bytes that this request brought. Null before its chunk begins and once they are stored. */
  #fresh: { draft: BlobDraft; hash: Hash } | null = null;
  /** Bytes of the key's files, and its other unfinished uploads, when the chunk began. */
  #ofKey: { storedBytes: number; uploads: readonly UploadRecord[] } = { storedBytes: 0, uploads: [] };
  #chunk: Chunk | null = null;
  #last: Promise<unknown> = Promise.resolve();

  /** `file`: the finished file; null before the upload is finished. */
  constructor(context: UploadContext, id: string, record: UploadRecord, file: FileRecord | null) {
    this.#context = context;
    this.id = id;
    this.apiKeyId = record.apiKeyId;
    this.facts = record.facts;
    this.#record = record;
    this.#file = file;
    this.state = file === null ? "active" : "final";
    this.receivedBytes =
      file?.sizeBytes ?? context.active.get(record.id)?.receivedBytes ?? record.receivedBytes;
  }

  /** The file; null until the upload is finished. */
  get file(): FileRecord | null {
    return this.#file;
  }

  /**
   * Begins a chunk: its first byte is the one at `offset`. Bytes that were received before are skipped, so a chunk may come
   * again. The request that had the upload before loses it. `sizeBytes`: the length of the chunk, 0 when it is unknown.
   * Throws `REALTIME_INVALID_ARGUMENT` for a gap, `REQUEST_TOO_LARGE`, `FILE_QUOTA_EXCEEDED`, `FILE_UPLOAD_NOT_FOUND`.
   */
  open(offset: number | null, sizeBytes: number): Promise<Chunk> {
    return this.#inOrder(async () => {
      await this.#takeOver();
      try {
        return await this.#begin(offset, sizeBytes);
      } catch (error) {
        this.#leave();
        throw error;
      }
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

  async #begin(offset: number | null, sizeBytes: number): Promise<Chunk> {
    const { stores, blobs, clock } = this.#context;
    this.#refuseEnded();
    const at = offset ?? this.receivedBytes;
    if (at > this.receivedBytes) {
      const problem = `is ${at}, but ${this.receivedBytes} bytes were received: send the bytes from there on`;
      throw argumentError("offset", problem);
    }
    const open = await stores.read.uploads.openOfKey(this.apiKeyId);
    this.#ofKey = {
      storedBytes: await stores.read.files.bytesOf(this.apiKeyId, clock.nowMs()),
      uploads: open.filter(({ id }) => id !== this.#record.id),
    };
    await this.#refuseTooMany(at + sizeBytes - this.receivedBytes);
    this.#fresh = { draft: blobs.draft(), hash: createHash("sha256") };
    let end = at;
    const chunk: Chunk = {
      add: (bytes) =>
        this.#inOrder(async () => {
          this.#refuseOther(chunk);
          await this.#store(bytes.subarray(Math.min(bytes.length, this.receivedBytes - end)));
          end += bytes.length;
        }),
      finish: () =>
        this.#inOrder(() => {
          this.#refuseOther(chunk);
          return this.#finish(end);
        }),
      close: () => this.#inOrder(() => (this.#chunk === chunk ? this.#close() : Promise.resolve())),
    };
    this.#chunk = chunk;
    return chunk;
  }

  async #store(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    if (this.#fresh === null) throw argumentError("body", "the file has all its bytes already: finalize it");
    await this.#refuseTooMany(bytes.length);
    try {
      await this.#fresh.draft.write(bytes);
    } catch (error) {
      // A part of the bytes may be on the disk: the upload cannot go on.
      await this.#end();
      throw error;
    }
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
    const isWhole = this.#fresh !== null && this.#record.receivedBytes === 0;
    const sha256 = await this.#storeAs(blobKey);
    const undo = async () => {
      // A later chunk finishes the upload without sending the bytes again.
      const bytes = isWhole ? await blobs.borrow(blobKey) : null;
      await this.#keepPart(bytes).finally(() => blobs.delete(blobKey));
    };
    this.#file = await commitOrUndo(() => this.#recordFile(blobKey, sha256), undo);
    this.state = "final";
    if (this.#record.parts.length > 0) await removeParts(this.#context, this.#record.id);
    return this.#file;
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
    const id = facts.id ?? newFileId();
    const nowMs = clock.nowMs();
    await refuseTakenName(this.#context, apiKeyId, id);
    const file = { id, apiKeyId, displayName, mimeType, purpose, sizeBytes, sha256, blobKey };
    const record = { ...file, createdAtMs: nowMs, expiresAtMs: nowMs + keptMs };
    await stores.write(async (tx) => {
      await tx.lock("key", apiKeyId);
      if (await tx.files.find(apiKeyId, id)) throw nameTaken(id);
      const stored = await tx.files.bytesOf(apiKeyId, nowMs);
      if (stored + sizeBytes > limits.uploadBytesPerKey) throw quotaExceeded(limits.uploadBytesPerKey);
      await tx.files.insert(record);
      const { isChanged } = await tx.uploads.change(this.#record, { fileId: id, touchedAtMs: nowMs });
      if (!isChanged) throw takenOver();
    });
    return record;
  }

  async #close(): Promise<void> {
    await this.#endChunk().finally(() => this.#leave());
  }

  async #endChunk(): Promise<void> {
    if (this.#chunk === null) return;
    this.#chunk = null;
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
    if (record === null) this.state = "cancelled";
    else {
      this.#record = record;
      this.#file = await fileOf(stores, record);
      if (this.#file !== null) this.state = "final";
      this.receivedBytes = this.#file?.sizeBytes ?? record.receivedBytes;
    }
  }

  #leave(): void {
    const { active } = this.#context;
    if (active.get(this.#record.id) === this) active.delete(this.#record.id);
  }

  /** A file that can never be stored ends its upload; one for which there may be space later does not. */
  async #refuseTooMany(moreBytes: number): Promise<void> {
    const { limits, active } = this.#context;
    const { uploadBytes, uploadBytesPerKey } = limits;
    const bytes = this.receivedBytes + moreBytes;
    if (bytes > uploadBytes) {
      await this.#end();
      throw fileTooLarge(uploadBytes);
    }
    const { storedBytes, uploads } = this.#ofKey;
    if (storedBytes + bytesOfUploads(uploads, active) + bytes > uploadBytesPerKey)
      throw quotaExceeded(uploadBytesPerKey);
  }

  #refuseEnded(): void {
    if (this.state !== "active") throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
  }

  #refuseOther(chunk: Chunk): void {
    this.#refuseEnded();
    if (this.#chunk !== chunk) throw takenOver();
  }

  async #end(): Promise<void> {
    if (this.state !== "active") return;
    this.state = "cancelled";
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

export async function fileOf(
  { read }: Stores,
  { apiKeyId, fileId }: UploadRecord,
): Promise<FileRecord | null> {
  return fileId === null ? null : read.files.find(apiKeyId, fileId);
}

/** Removes the bytes of an upload. Those that cannot be removed now are removed with the idle uploads. */
async function removeParts({ blobs }: UploadDeps, rowId: string): Promise<void> {
  await blobs.deleteAll(prefixOf(rowId)).catch(() => {});
}

export async function forget(deps: UploadDeps, rowId: string): Promise<void> {
  await removeParts(deps, rowId);
  await deps.stores.write((tx) => tx.uploads.remove(rowId));
}

const prefixOf = (rowId: string) => `${PARTS_PREFIX}${rowId}/`;

/** The bytes that unfinished uploads have, or will have as far as they were announced. */
export function bytesOfUploads(
  uploads: readonly UploadRecord[],
  active: ReadonlyMap<string, Upload>,
): number {
  return uploads.reduce((sum, { id, receivedBytes, announcedBytes }) => {
    const received = active.get(id)?.receivedBytes ?? receivedBytes;
    return sum + Math.max(received, announcedBytes ?? 0);
  }, 0);
}

/** 12 lower-case letters and digits: client libraries cut an id at any other character. */
function newFileId(): string {
  return Array.from({ length: ID_LENGTH }, () => ID_CHARS[randomInt(ID_CHARS.length)]).join("");
}

export function fileTooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The file is larger than ${formatBytes(maxBytes)}.`);
}

export function quotaExceeded(maxBytes: number): ImgbatchError {
  const message = `The files and uploads of this key would take more than ${formatBytes(maxBytes)}; delete some.`;
  return new ImgbatchError("FILE_QUOTA_EXCEEDED", message);
}

const takenOver = () => new ImgbatchError("FILE_UPLOAD_TAKEN_OVER");

/** An error about one part of a request: its `offset`, `announcedBytes` or `body`. */
function argumentError(param: string, problem: string): ImgbatchError {
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `${param}: ${problem}`, { param });
}
