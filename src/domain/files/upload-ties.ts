import type { BlobDraft } from "../ports/blob-store.ts";
import type { FileRecord } from "../ports/files.ts";
import type { Transaction } from "../ports/stores.ts";
import type { UploadLimits } from "./rules.ts";

/** The ties of one upload to all others. */
export interface Ties {
  limits: UploadLimits;
  /** Bytes of all open uploads of the key. */
  openBytes(): number;
  /** The upload is not open any more. */
  onEnd(): Promise<void> | void;
  /** Where other processes may bring the next chunk; null where this one brings all. */
  parts: Parts | null;
}

/** Keeps the bytes of each request where every process finds them. */
export interface Parts {
  /** Stores what a request has brought. Throws `FILE_UPLOAD_TAKEN_OVER` when another process was first. */
  keep(draft: BlobDraft, from: number, to: number): Promise<void>;
  /** Returns a draft with the bytes of all requests, of which the last are in `last`, and their SHA-256. */
  join(last: BlobDraft | null): Promise<{ draft: BlobDraft; sha256: string }>;
  /** Marks the upload as a file, in the transaction that writes it. Throws as `keep` does. */
  finish(tx: Transaction, receivedBytes: number, fileId: string): Promise<void>;
}

/** The state of an upload that goes on. */
export interface KnownUpload {
  id: string;
  receivedBytes: number;
  file: FileRecord | null;
}

/** A part of a file that one request brings. */
export interface Chunk {
  /** Where the next byte belongs. */
  at: number;
  /**
   * Stores the next bytes. Throws `FILE_UPLOAD_TAKEN_OVER`, and the errors of `Upload.open` and of a disk that refuses.
   */
  add(bytes: Buffer): Promise<void>;
  /**
   * Makes the upload a file, durably. Throws `REALTIME_INVALID_ARGUMENT` when it is empty, has another size than
   * announced or more bytes than this chunk ends with, `FILE_NAME_TAKEN`, `FILE_QUOTA_EXCEEDED`, and `StorageUnavailable`; then it can be tried again.
   */
  finish(): Promise<FileRecord>;
  /** The request has ended. The bytes that it has brought stay. */
  close(): Promise<void>;
}
