/** A secret that stands for something of a key for a time, where several processes take requests. */
export interface TimedSecretRecord {
  /** SHA-256 of the secret, as lower-case hexadecimal digits: whoever reads the database learns no secret. */
  id: string;
  /** What it is for. */
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

/** How many real-time requests of a key began in each second, over all processes. */
export interface RequestCountRepository {
  /** Adds a request that begins in this second since 1970, and forgets those before `oldestSecond`. */
  add(apiKeyId: string, second: number, oldestSecond: number): Promise<void>;
  /** The requests from a second on, and the first second that has one. */
  since(apiKeyId: string, second: number): Promise<{ count: number; firstSecond: number | null }>;
}
