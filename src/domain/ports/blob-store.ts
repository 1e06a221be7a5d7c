import type { Readable } from "node:stream";

/**
 * Why the storage cannot be used now. `full`: no space, or a quota is used up. `broken`: the disk or its rights fail.
 * `busy`: another process keeps the database locked. `unknown-commit`: the disk failed, or the connection was lost, during a
 * commit. The write may have happened, or may still appear; so it is repeated only where a repeat finds what it has done.
 */
type StorageTrouble = "full" | "broken" | "busy" | "unknown-commit";

/**
 * The storage cannot take or return data now. The message is fit for callers: it names no path, at most the bare error
 * code of the operating system. `cause` is the error of the disk or the database.
 */
export class StorageUnavailable extends Error {
  readonly reason: StorageTrouble;

  /** Whether an error leaves open if the write has happened. */
  static mayHaveHappened(error: unknown): boolean {
    return error instanceof StorageUnavailable && error.reason === "unknown-commit";
  }

  constructor(reason: StorageTrouble, message: string, cause: unknown) {
    super(message, { cause });
    this.name = "StorageUnavailable";
    this.reason = reason;
  }
}

interface BlobFacts {
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  crc32: number;
}

/**
 * Bytes on their way into the store: they have no key yet, and a restart removes them. Every method may be called at any
 * time; they wait for each other. Writing rejects with `StorageUnavailable` when the disk is full or refuses.
 */
export interface BlobDraft {
  /** Appends; the bytes must not change until this resolves. */
  write(bytes: Uint8Array): Promise<void>;
  /** Frees the resources that only writing needs. A later `write` appends all the same. */
  finish(): Promise<void>;
  read(): Promise<Buffer>;
  /** Lends the bytes until the work has ended: their memory is used again. Few drafts are lent at once. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  /** Makes it the blob of this key. When this resolves, the bytes survive a power cut. */
  keepAs(key: string): Promise<void>;
  /** Removes the draft. Does nothing to the blob that it has become. */
  discard(): Promise<void>;
}

/** A draft that takes no more bytes. */
export type LentDraft = Omit<BlobDraft, "write" | "finish">;

/** A blob as a list of the store shows it. */
export interface ListedBlob {
  key: string;
  sizeBytes: number;
  /** How long ago it was stored, by the clock of the store. */
  ageMs: number;
}

/** A blob that is read in any order. It stays readable when the blob is deleted meanwhile. */
interface BlobReader {
  /** Reads the bytes from `at` on into `memory`. Returns how many: fewer than it holds only at the end, or where the file cannot be read. */
  read(memory: Buffer, at: number): Promise<number>;
  close(): Promise<void>;
}

/** Keeps bytes under keys like `outputs/<batch>/<name>`. Keys are made by the service, never by a caller. */
export interface BlobStore {
  /**
   * When this resolves, the bytes survive a power cut; until then the key does not exist. Rejects with
   * `StorageUnavailable` when the disk is full or refuses.
   */
  put(key: string, bytes: Buffer): Promise<BlobFacts>;
  /**
   * `put` for a key that others may take at the same moment: a blob that is there already stays. Some S3 servers cannot do
   * that; there the last one stays.
   */
  putNew(key: string, bytes: Buffer): Promise<void>;
  /** Begins a blob whose key is not known yet. The caller must keep or discard it. */
  draft(): BlobDraft;
  /**
   * A draft with the bytes of a blob, which it keeps even when the blob is deleted. The caller must keep or discard it.
   * Null when there is no such blob.
   */
  borrow(key: string): Promise<LentDraft | null>;
  /** Removes the drafts of an earlier process. */
  removeDrafts(): Promise<void>;
  /**
   * Null when there is no such blob, or when its file cannot be read (a bad sector, say). With `sizeBytes`, also when it has
   * another size. Of a larger one no more is read than that, since it may be too large for the memory.
   */
  read(key: string, sizeBytes?: number): Promise<Buffer | null>;
  /** Returns the result of the work, or null as with `read`. See `BlobDraft.lend`. */
  lend<T>(key: string, work: (bytes: Buffer) => Promise<T>): Promise<T | null>;
  /** Bytes `start` to `end`, inclusive; all of them by default. Null as with `read`. The caller reads or destroys the stream. */
  open(key: string, range?: { start: number; end: number }): Promise<Readable | null>;
  /** Null as with `read`. The caller must close the reader. */
  reader(key: string): Promise<BlobReader | null>;
  /** The size, or null when there is no such blob. */
  sizeOf(key: string): Promise<number | null>;
  /** Returns the blobs below a prefix that ends with `/`, or all for an empty one, including files that a killed process left half written. */
  list(prefix: string): Promise<ListedBlob[]>;
  /** Does nothing when the blob is missing. */
  delete(key: string): Promise<void>;
  /** Removes everything below a prefix that ends with `/`. */
  deleteAll(prefix: string): Promise<void>;
}
