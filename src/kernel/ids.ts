import { createHash, hash, randomBytes } from "node:crypto";

/** Whether a text is an API key of this program. */
export function isApiKey(text: string): boolean {
  return /^imgb_[\w-]{43}$/.test(text);
}

/** Makes the identifiers of the service; tests replace it to get the same ones again. */
export interface Ids {
  /** `imgbatch_` and 32 lower-case hexadecimal digits. */
  batchId(): string;
  /** `imgb_` and 43 base64url characters: 256 random bits. */
  apiKey(): string;
  /** `req_` and 24 hexadecimal digits. */
  requestId(): string;
  /** An id for a record of the given kind: the prefix, `_` and 20 hexadecimal digits. */
  recordId(prefix: string): string;
  /** Proves who holds a lease. */
  leaseToken(): string;
}

const BLOCK_BYTES = 4096;
let block = Buffer.alloc(0);
let used = 0;

/** Random bytes as hexadecimal digits. They are fetched in blocks: to fetch a few takes as long as to fetch many. */
function hex(bytes: number): string {
  if (used + bytes > block.length) {
    block = randomBytes(BLOCK_BYTES);
    used = 0;
  }
  used += bytes;
  return block.toString("hex", used - bytes, used);
}

export const randomIds: Ids = {
  batchId: () => `imgbatch_${hex(16)}`,
  apiKey: () => `imgb_${randomBytes(32).toString("base64url")}`,
  requestId: () => `req_${hex(12)}`,
  recordId: (prefix) => `${prefix}_${hex(10)}`,
  leaseToken: () => hex(16),
};

/** SHA-256 as lower-case hexadecimal digits. */
export function sha256Hex(data: string | Uint8Array): string {
  return hash("sha256", data);
}

/** A number from 0 to 2^31 - 1 that only the text decides: the seed of an image that has this id. */
export function seedOf(id: string): number {
  return createHash("sha256").update(id).digest().readUInt32BE(0) >>> 1;
}
