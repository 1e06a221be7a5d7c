import { sha256Hex } from "../../kernel/ids.ts";
import type { BlobDraft, BlobStore } from "../ports/blob-store.ts";

/** The bytes of an image that a caller sent, wherever they are kept until somebody needs them. */
export interface SentImage {
  readonly sizeBytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  read(): Promise<Buffer>;
  /** The bytes for the time of this work alone: their memory is used again. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  /** Makes them a blob; at most once. They survive a power cut when this resolves. */
  keepAs(blobs: BlobStore, key: string): Promise<void>;
}

/** What became of a long Base64 text of a body, which was decoded while it arrived. */
export interface SentText {
  /** Length of the text in UTF-16 units. */
  chars: number;
  content: SentImage | "no Base64" | "too large";
}

/** The long texts of a body, by what stands in the place of each: no caller can guess one. */
export type SentTexts = ReadonlyMap<string, SentText>;

/** What there is for a small body, and for one that did not come over the wire. */
export const NO_SENT_TEXTS: SentTexts = new Map();

export function imageInMemory(bytes: Buffer): SentImage {
  return {
    sizeBytes: bytes.length,
    sha256: sha256Hex(bytes),
    read: async () => bytes,
    lend: (work) => work(bytes),
    keepAs: async (blobs, key) => {
      await blobs.put(key, bytes);
    },
  };
}

export function imageInDraft(draft: BlobDraft, facts: { sizeBytes: number; sha256: string }): SentImage {
  return {
    ...facts,
    read: () => draft.read(),
    lend: (work) => draft.lend(work),
    keepAs: (_blobs, key) => draft.keepAs(key),
  };
}
