import { createHash, randomBytes } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { BlobDraft, BlobStore } from "../ports/blob-store.ts";
import type { FileFacts, FileRecord } from "../ports/files.ts";
import { StorageUnavailable } from "../ports/storage-unavailable.ts";
import type { Stores } from "../ports/stores.ts";
import { FILES_PREFIX } from "./files.ts";
import {
  argumentError,
  fileTooLarge,
  nameTaken,
  newFileId,
  quotaExceeded,
  refuseTakenName,
  storedBytes,
} from "./rules.ts";
import type { Chunk, KnownUpload, Ties } from "./upload-ties.ts";

const HOUR_MS = 3_600_000;

export interface UploadDeps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
}

/**
 * A file on its way. Requests bring it in chunks; one of them has the upload at a time. All methods wait for the step that
 * is running.
 */
export class Upload {
  /** 128 random bits: whoever knows them may go on with the upload. Must not be logged. */
  readonly id: string;
  readonly apiKeyId: string;
  /** May be set until the upload is finished. */
  facts: FileFacts;
  /** The size that was announced; null when none was. */
  readonly announcedBytes: number | null;
  receivedBytes: number;
  state: "active" | "final" | "cancelled";
  /** When it was last used, in ms of the monotonic clock. */
  touchedMs: number;
  readonly #deps: UploadDeps;
  readonly #ties: Ties;
  #draft: BlobDraft;
  /** Where the bytes of the draft begin. */
  #draftFrom: number;
  readonly #hash = createHash("sha256");
  /** Set once the bytes are a blob. */
  #stored: { blobKey: string; sha256: string } | null = null;
  #file: FileRecord | null;
  /** The record may have been written, or not: only the next start knows. */
  #mayBeRecorded = false;
  #storedBytes = 0;
  #chunk: Chunk | null = null;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    deps: UploadDeps,
    caller: { apiKeyId: string; facts: FileFacts; announcedBytes: number | null },
    ties: Ties,
    known: KnownUpload = { id: newUploadId(), receivedBytes: 0, file: null },
  ) {
    this.id = known.id;
    this.receivedBytes = known.receivedBytes;
    this.state = known.file === null ? "active" : "final";
    this.#file = known.file;
    this.#draftFrom = known.receivedBytes;
    this.#deps = deps;
    this.#ties = ties;
    this.apiKeyId = caller.apiKeyId;
    this.facts = caller.facts;
    this.announcedBytes = caller.announcedBytes;
    this.#draft = deps.blobs.draft();
    this.touchedMs = deps.clock.monotonicMs();
  }

  /** Whether a request is bringing bytes now. */
  get isBusy(): boolean {
    return this.#chunk !== null;
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
      this.#refuseEnded();
      const at = offset ?? this.receivedBytes;
      if (at > this.receivedBytes) {
        const problem = `is ${at}, but ${this.receivedBytes} bytes were received: send the bytes from there on`;
        throw argumentError("X-Goog-Upload-Offset", problem);
      }
      this.#storedBytes = await storedBytes(this.#deps, this.apiKeyId);
      await this.#refuseTooMany(at + sizeBytes - this.receivedBytes);
      const chunk: Chunk = {
        add: (bytes) => this.#inOrder(() => this.#add(chunk, bytes)),
        finish: () => this.#inOrder(() => this.#finish(chunk)),
        close: () => this.#inOrder(() => this.#close(chunk)),
        at,
      };
      this.#chunk = chunk;
      return chunk;
    });
  }

  /** Ends the upload and removes its bytes. Does nothing to a finished one. */
  cancel(): Promise<void> {
    return this.#inOrder(() => this.#end());
  }

  async #add(chunk: Chunk, bytes: Buffer): Promise<void> {
    this.#refuseOther(chunk);
    const known = Math.min(bytes.length, this.receivedBytes - chunk.at);
    await this.#store(bytes.subarray(known));
    chunk.at += bytes.length;
  }

  async #store(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    if (this.#stored !== null) throw argumentError("body", "the file has all its bytes already: finalize it");
    await this.#refuseTooMany(bytes.length);
    try {
      await this.#draft.write(bytes);
    } catch (error) {
      // A part of the bytes may be on the disk: the upload cannot go on.
      await this.#end();
      throw error;
    }
    this.#hash.update(bytes);
    this.receivedBytes += bytes.length;
  }

  async #finish(chunk: Chunk): Promise<FileRecord> {
    this.#refuseOther(chunk);
    const { receivedBytes, announcedBytes } = this;
    if (chunk.at !== receivedBytes) {
      const problem = `the bytes of this request end at ${chunk.at}, but ${receivedBytes} bytes were received before`;
      throw argumentError("X-Goog-Upload-Offset", problem);
    }
    if (receivedBytes === 0) throw argumentError("body", "the file is empty");
    if (announcedBytes !== null && receivedBytes !== announcedBytes) {
      const problem = `${announcedBytes} bytes were announced, and ${receivedBytes} were received`;
      throw argumentError("X-Goog-Upload-Header-Content-Length", problem);
    }
    this.#stored ??= await this.#storeWhole();
    this.#file = await this.#record(this.#stored).catch((error) => {
      this.#mayBeRecorded ||= StorageUnavailable.mayHaveHappened(error);
      throw error;
    });
    this.state = "final";
    await this.#ties.onEnd();
    return this.#file;
  }

  async #storeWhole(): Promise<{ blobKey: string; sha256: string }> {
    const blobKey = `${FILES_PREFIX}${randomBytes(16).toString("hex")}`;
    const { parts } = this.#ties;
    const isWhole = this.#draftFrom === 0 || parts === null;
    const { draft, sha256 } = isWhole
      ? { draft: this.#draft, sha256: this.#hash.copy().digest("hex") }
      : await parts.join(this.receivedBytes > this.#draftFrom ? this.#draft : null);
    await draft.keepAs(blobKey);
    return { blobKey, sha256 };
  }

  async #record({ blobKey, sha256 }: { blobKey: string; sha256: string }): Promise<FileRecord> {
    const { apiKeyId, facts, receivedBytes: sizeBytes } = this;
    const { stores, clock } = this.#deps;
    const { displayName, mimeType, purpose = null, keptMs = FIXED_LIMITS.fileHours * HOUR_MS } = facts;
    const id = facts.id ?? newFileId();
    const nowMs = clock.nowMs();
    await refuseTakenName(this.#deps, apiKeyId, id);
    const file = { id, apiKeyId, displayName, mimeType, purpose, sizeBytes, sha256, blobKey };
    const record = { ...file, createdAtMs: nowMs, expiresAtMs: nowMs + keptMs };
    await stores.write(async (tx) => {
      await tx.lock("key", apiKeyId);
      if (await tx.files.find(apiKeyId, id)) throw nameTaken(id);
      const stored = await tx.files.bytesOf(apiKeyId, nowMs);
      if (stored + sizeBytes > this.#ties.limits.uploadBytesPerKey) throw this.#quotaError();
      await tx.files.insert(record);
      await this.#ties.parts?.finish(tx, this.#draftFrom, id);
    });
    return record;
  }

  async #close(chunk: Chunk): Promise<void> {
    this.touchedMs = this.#deps.clock.monotonicMs();
    if (this.#chunk !== chunk) return;
    this.#chunk = null;
    if (this.state !== "active") return;
    // Between two chunks an upload needs no file handle.
    await this.#draft.finish();
    await this.#keepPart();
  }

  /** Another process may have to go on from the bytes that this request has brought. */
  async #keepPart(): Promise<void> {
    const { parts } = this.#ties;
    if (parts === null || this.receivedBytes === this.#draftFrom || this.#stored !== null) return;
    const draft = this.#draft;
    this.#draft = this.#deps.blobs.draft();
    const from = this.#draftFrom;
    this.#draftFrom = this.receivedBytes;
    await parts.keep(draft, from, this.receivedBytes);
  }

  /** A file that can never be stored ends its upload; one for which there may be space later does not. */
  async #refuseTooMany(moreBytes: number): Promise<void> {
    const { uploadBytes, uploadBytesPerKey } = this.#ties.limits;
    if (this.receivedBytes + moreBytes > uploadBytes) {
      await this.#end();
      throw fileTooLarge(uploadBytes);
    }
    if (this.#storedBytes + this.#ties.openBytes() + moreBytes > uploadBytesPerKey) throw this.#quotaError();
  }

  #quotaError(): ImgbatchError {
    return quotaExceeded(this.#ties.limits.uploadBytesPerKey);
  }

  #refuseEnded(): void {
    if (this.state !== "active") throw new ImgbatchError("FILE_UPLOAD_NOT_FOUND");
  }

  #refuseOther(chunk: Chunk): void {
    if (this.#chunk !== chunk) throw new ImgbatchError("FILE_UPLOAD_TAKEN_OVER");
    this.#refuseEnded();
  }

  async #end(): Promise<void> {
    if (this.state !== "active") return;
    this.state = "cancelled";
    await this.#ties.onEnd();
    // The next start removes what cannot be removed now.
    await this.#draft.discard().catch(() => {});
    if (this.#stored !== null && !this.#mayBeRecorded)
      await this.#deps.blobs.delete(this.#stored.blobKey).catch(() => {});
  }

  #inOrder<T>(step: () => Promise<T>): Promise<T> {
    const result = this.#last.then(step);
    this.#last = result.catch(() => {});
    return result;
  }
}

/** Returns a new id. */
export function newUploadId(): string {
  return randomBytes(16).toString("hex");
}
