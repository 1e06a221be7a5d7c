import type { FileFacts } from "./files.ts";

/** A secret that stands for something of a key for a time, where several processes take requests. */
export interface TimedSecretRecord {
  /** SHA-256 of the secret, as lower-case hexadecimal digits: whoever reads the database learns no secret. */
  id: string;
  /** The purpose of the secret. */
  kind: "code" | "session" | "ticket";
  apiKeyId: string;
  batchId: string | null;
  expiresAtMs: number;
}

export interface TimedSecretRepository {
  insert(secret: TimedSecretRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<TimedSecretRecord | null>;
  /** Removes the record and returns it, to one caller alone; null when there is none. */
  take(id: string): Promise<TimedSecretRecord | null>;
  /** Those of a kind and key, the first to expire first. */
  ofKey(kind: TimedSecretRecord["kind"], apiKeyId: string): Promise<TimedSecretRecord[]>;
  removeExpired(nowMs: number): Promise<void>;
}

/** An unfinished upload, where several processes take its chunks; a finished one, for a client that lost the answer. */
export interface UploadRecord {
  /** SHA-256 of the id that the client has: whoever reads the database cannot go on with the upload. */
  id: string;
  apiKeyId: string;
  facts: FileFacts;
  announcedBytes: number | null;
  /** The bytes of the chunks that are stored. */
  receivedBytes: number;
  /** The blobs with the chunks, in their order. */
  parts: readonly string[];
  /** The id of the file that it has become; null before. */
  fileId: string | null;
  touchedAtMs: number;
}

export interface UploadRepository {
  insert(upload: UploadRecord): Promise<void>;
  find(id: string): Promise<UploadRecord | null>;
  /** Returns the uploads of a key that are not finished. */
  openOfKey(apiKeyId: string): Promise<UploadRecord[]>;
  /** Changes an upload that is no file yet, if it still has `receivedBytes`. */
  change(
    upload: Pick<UploadRecord, "id" | "receivedBytes">,
    change: Partial<Pick<UploadRecord, "receivedBytes" | "parts" | "fileId" | "touchedAtMs">>,
  ): Promise<{ isChanged: boolean }>;
  /** Those that nobody has used since the time. */
  idleSince(ms: number): Promise<UploadRecord[]>;
  remove(id: string): Promise<void>;
}

/** How many real-time requests of a key began in each second, over all processes. */
export interface RequestCountRepository {
  /** Adds a request that begins in this second since 1970, and forgets those before `oldestSecond`. */
  add(apiKeyId: string, second: number, oldestSecond: number): Promise<void>;
  /** The requests from a second on, and the first second that has one. */
  since(apiKeyId: string, second: number): Promise<{ count: number; firstSecond: number | null }>;
}
