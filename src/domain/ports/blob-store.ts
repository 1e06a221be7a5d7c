export interface BlobFacts {
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  crc32: number;
}

/** Keeps bytes under keys like `outputs/<batch>/<name>`. Keys are made by the service, never by a caller. */
export interface BlobStore {
  /** When this resolves, the bytes survive a power cut; until then the key does not exist. */
  put(key: string, bytes: Buffer): Promise<BlobFacts>;
  /** Null when there is no such blob, or when its file cannot be read (a bad sector, say). */
  read(key: string): Promise<Buffer | null>;
  /** The size, or null when there is no such blob. */
  sizeOf(key: string): Promise<number | null>;
  /** The keys below a prefix that ends with `/`; names that a killed process left half written are among them. */
  list(prefix: string): Promise<string[]>;
  /** No error when the blob is not there. */
  delete(key: string): Promise<void>;
  /** Removes everything below a prefix that ends with `/`. */
  deleteAll(prefix: string): Promise<void>;
}
