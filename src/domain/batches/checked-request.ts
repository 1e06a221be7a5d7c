import type { ImageMimeType } from "../../contract/image-formats.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import { askedOptions, type CheckedContent } from "../checked-content.ts";
import type { ModelEntry } from "../models.ts";

/** A request for a batch that has passed every check that needs no database. */
export interface CheckedRequest {
  model: ModelEntry;
  /** Null when the caller gave none. */
  taskName: string | null;
  parentBatchId: string | null;
  mimeType: ImageMimeType;
  metadata: Record<string, string> | null;
  /** The name of the provider that is to make the images. Default: null, the first that serves the model. */
  provider?: string | null;
  items: readonly CheckedItem[];
  /** See `requestHash`. */
  hash: string;
}

/** One item of a request that has passed every check. */
export interface CheckedItem extends CheckedContent {
  customId: string;
  outputCount: number;
}

/**
 * SHA-256 over everything that a request asks for, in lower-case hexadecimal: requests that ask for the same have equal
 * hashes, however they were written.
 */
export function requestHash(request: Omit<CheckedRequest, "hash" | "model"> & { modelId: string }): string {
  const { modelId: model, taskName, parentBatchId, mimeType, provider = null } = request;
  const metadata = Object.keys(request.metadata ?? {}).length === 0 ? null : request.metadata;
  const items = request.items.map(({ customId, prompt, outputCount, images, options }) => {
    const references = images.map(({ id, type, mimeType, sha256 }) => ({ id, type, mimeType, sha256 }));
    const asked = askedOptions(options);
    const item = { customId, prompt, outputCount, references };
    return asked === null ? item : { ...item, options: asked };
  });
  const named = provider === null ? {} : { provider };
  return sha256Hex(canonicalJson({ model, taskName, parentBatchId, mimeType, metadata, ...named, items }));
}
