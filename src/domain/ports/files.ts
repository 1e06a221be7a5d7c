/** A file that a key has uploaded to the vendor's API, or to OpenAI's. */
export interface FileRecord {
  /** Unique among the files of the key: lower-case letters, digits and dashes, 40 at most. */
  id: string;
  apiKeyId: string;
  displayName: string | null;
  /** As the caller declared it: any text. */
  mimeType: string;
  /** Its purpose, in the words of OpenAI's clients; null when the caller said nothing. */
  purpose: string | null;
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  blobKey: string;
  createdAtMs: number;
  /** From then on nobody sees the file. 0: it was deleted. The sweep removes it. */
  expiresAtMs: number;
}

/** The files of a key that expire after `nowMs`, in the order in which they were stored or the other way round. */
interface FilePage {
  apiKeyId: string;
  nowMs: number;
  order: "oldest-first" | "newest-first";
  /** Only files that come after the one with this number, in this order. */
  afterSeq?: number;
  purpose?: string;
  limit: number;
}

export interface FileRepository {
  insert(file: FileRecord): Promise<void>;
  /** Also finds a file that has expired. */
  find(apiKeyId: string, id: string): Promise<(FileRecord & { seq: number }) | null>;
  page(filter: FilePage): Promise<(FileRecord & { seq: number })[]>;
  /** The bytes of the files of a key that expire after `nowMs`. */
  bytesOf(apiKeyId: string, nowMs: number): Promise<number>;
  /** Files that expire by `nowMs`, in the order in which they were stored, behind the one with the number `afterSeq`. */
  due(nowMs: number, page: { afterSeq: number; limit: number }): Promise<(FileRecord & { seq: number })[]>;
  setExpiry(blobKey: string, expiresAtMs: number): Promise<void>;
  remove(blobKey: string): Promise<void>;
  blobKeys(): Promise<string[]>;
}

/** The caller's description of a file. */
export interface FileFacts {
  /** Null: the service makes one. */
  id: string | null;
  displayName: string | null;
  mimeType: string;
  /** Default: the caller said nothing. */
  purpose?: string;
  /** How long the file is kept, in ms. */
  keptMs?: number;
}
