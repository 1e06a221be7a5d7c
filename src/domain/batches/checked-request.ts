import type { AspectRatio, ImageMimeType } from "../../contract/image-formats.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import type { SentImage } from "../images/sent-image.ts";
import type { ModelEntry } from "../models.ts";

/** A request for a batch that has passed every check that needs no database. */
export interface CheckedRequest {
  model: ModelEntry;
  /** Null when the caller gave none. */
  taskName: string | null;
  parentBatchId: string | null;
  mimeType: ImageMimeType;
  metadata: Record<string, string> | null;
  items: readonly CheckedItem[];
  /** See `requestHash`. */
  hash: string;
}

/** One item of a request that has passed every check. */
export interface CheckedItem {
  customId: string;
  prompt: string;
  outputCount: number;
  references: readonly CheckedReference[];
  /** The ratio nearest to that of the first reference, which the image keeps; null without one. Not part of the hash. */
  ratio: AspectRatio | null;
}

/** A reference image: its bytes, or the URI of a storage that the provider can read. */
export interface CheckedReference {
  id: string | null;
  type: string | null;
  mimeType: ImageMimeType;
  /** Null for a reference by `storageUri`. */
  image: SentImage | null;
  sha256: string | null;
  storageUri: string | null;
}

/**
 * SHA-256 over everything that a request asks for, in lower-case hexadecimal: requests that ask for the same have equal
 * hashes, however they were written.
 */
export function requestHash(
  request: Omit<CheckedRequest, "hash" | "model" | "items"> & {
    modelId: string;
    items: readonly Omit<CheckedItem, "ratio">[];
  },
): string {
  const { modelId: model, taskName, parentBatchId, mimeType } = request;
  const metadata = Object.keys(request.metadata ?? {}).length === 0 ? null : request.metadata;
  const items = request.items.map(({ customId, prompt, outputCount, references }) => {
    const sent = references.map(({ image: _, ...facts }) => facts);
    return { customId, prompt, outputCount, references: sent };
  });
  return sha256Hex(canonicalJson({ model, taskName, parentBatchId, mimeType, metadata, items }));
}
