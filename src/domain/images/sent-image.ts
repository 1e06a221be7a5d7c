import type { ImageMimeType } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type Base64Rules, isBase64 } from "../../kernel/base64.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { BlobStore, LentDraft } from "../ports/blob-store.ts";
import { type ImageFacts, type ImageInspector, InvalidImageError } from "../ports/image-inspector.ts";

interface Rules {
  maxBytes: number;
  base64: Base64Rules;
  /** The long texts of the body. */
  sent: SentTexts;
}

/** Returns the image of a Base64 field, or a text that describes the problem. Data URLs are refused. */
export function receiveImage(data: string, { maxBytes, base64, sent }: Rules): SentImage | string {
  const long = sent.get(data);
  const tooLarge = `is larger than ${formatBytes(maxBytes)}`;
  const noBase64 = `must be ${base64 === "strict" ? "strict " : ""}Base64, without a data URL prefix`;
  if ((long?.chars ?? data.length) > Math.ceil(maxBytes / 3) * 4) return tooLarge;
  const content = long?.content ?? decode(data, base64);
  if (content === "no Base64") return noBase64;
  return content === "too large" || content.sizeBytes > maxBytes ? tooLarge : content;
}

function decode(data: string, rules: Base64Rules): SentImage | "no Base64" {
  const bytes = Buffer.from(data, "base64");
  return isBase64(data, bytes, rules) ? imageInMemory(bytes) : "no Base64";
}

/** The bytes of an image that a caller sent: in memory, in a draft, or in a blob of an earlier batch. */
export interface SentImage {
  readonly sizeBytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  read(): Promise<Buffer>;
  /** Lends the bytes to the work. They must not be kept after it, because their memory is used again. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  /** Makes them a blob; at most once. They survive a power cut when this resolves. */
  keepAs(blobs: BlobStore, key: string): Promise<void>;
}

/** A long Base64 text of a body, decoded while it arrived. */
export interface SentText {
  /** Length of the text in UTF-16 units. */
  chars: number;
  /** It came behind the head of a data URL. */
  isDataUrl?: boolean;
  content: SentImage | "no Base64" | "too large";
}

/** The long texts of a body, by what stands in the place of each: no caller can guess one. */
export type SentTexts = ReadonlyMap<string, SentText>;

/** For a small body, whose texts are all in the parsed JSON. */
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

export function imageInDraft(draft: LentDraft, facts: { sizeBytes: number; sha256: string }): SentImage {
  return {
    ...facts,
    read: () => draft.read(),
    lend: (work) => draft.lend(work),
    keepAs: (_blobs, key) => draft.keepAs(key),
  };
}

/**
 * An image that is stored already, under another key. Reading throws the error of `onLost` when the blob is missing or
 * its bytes have another hash.
 */
export function imageInBlob(
  blobs: BlobStore,
  key: string,
  facts: { sizeBytes: number; sha256: string },
  onLost: () => Error,
): SentImage {
  const read = async () => {
    const bytes = await blobs.read(key);
    if (bytes === null || sha256Hex(bytes) !== facts.sha256) throw onLost();
    return bytes;
  };
  return {
    ...facts,
    read,
    lend: async (work) => work(await read()),
    keepAs: async (target, targetKey) => {
      await target.put(targetKey, await read());
    },
  };
}

/** The part of an input image that is wrong: its declared type, its bytes, or the total size of all images. */
interface InputImageProblem {
  about: "type" | "bytes" | "amount";
  problem: string;
}

/**
 * The input images of one request. Each must have its stated type; equal bytes are decoded once, and the pixels of
 * different ones are limited together.
 */
export class InputImages {
  readonly #inspector: ImageInspector;
  readonly #seen = new Map<string, ImageFacts>();
  #pixels = 0;

  constructor(inspector: ImageInspector) {
    this.#inspector = inspector;
  }

  /** `mimeType` is the declared type; null when it does not matter. */
  async check(image: SentImage, mimeType: ImageMimeType | null): Promise<ImageFacts | InputImageProblem> {
    const name = `${image.sha256} ${mimeType}`;
    const known = this.#seen.get(name);
    if (known) return known;
    let facts: ImageFacts;
    try {
      const limits = { maxPixels: FIXED_LIMITS.referencePixels };
      facts = await image.lend((bytes) => this.#inspector.inspect(bytes, limits));
    } catch (error) {
      if (!(error instanceof InvalidImageError)) throw error;
      return { about: "bytes", problem: error.message };
    }
    if (mimeType !== null && facts.mimeType !== mimeType) {
      return { about: "type", problem: `says ${mimeType}, the bytes are ${facts.mimeType}` };
    }
    this.#seen.set(name, facts);
    this.#pixels += facts.decodedPixels;
    if (this.#pixels > FIXED_LIMITS.referencePixelsPerRequest) {
      const megapixels = FIXED_LIMITS.referencePixelsPerRequest / 1e6;
      return { about: "amount", problem: `the input images exceed ${megapixels} megapixels in all` };
    }
    return facts;
  }
}
