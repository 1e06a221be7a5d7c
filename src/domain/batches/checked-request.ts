import type { ImageMimeType } from "../../contract/image-formats.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import type { SentImage } from "../images/sent-image.ts";
import type { ModelEntry } from "../models.ts";
import type { ItemTerms } from "../records.ts";

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
export interface CheckedItem {
  customId: string;
  prompt: string;
  outputCount: number;
  references: readonly CheckedReference[];
  /** What it asks for, without prices. `askedSeed` is that of the first output. */
  terms: ItemTerms;
}

/** A reference image. */
export interface CheckedReference {
  id: string | null;
  type: string | null;
  mimeType: ImageMimeType;
  image: SentImage;
  sha256: string;
}

/**
 * SHA-256 over everything that a request asks for, in lower-case hexadecimal: requests that ask for the same have equal
 * hashes, however they were written.
 */
export function requestHash(
  request: Omit<CheckedRequest, "hash" | "model" | "items"> & {
    modelId: string;
    items: readonly CheckedItem[];
  },
): string {
  const { modelId: model, taskName, parentBatchId, mimeType, provider = null } = request;
  const metadata = Object.keys(request.metadata ?? {}).length === 0 ? null : request.metadata;
  const items = request.items.map(({ customId, prompt, outputCount, references, terms }) => {
    const sent = references.map(({ image: _, ...facts }) => facts);
    const options = askedIn(terms);
    const item = { customId, prompt, outputCount, references: sent };
    return Object.keys(options).length === 0 ? item : { ...item, options };
  });
  const named = provider === null ? {} : { provider };
  return sha256Hex(canonicalJson({ model, taskName, parentBatchId, mimeType, metadata, ...named, items }));
}

/** Returns what an item asks for besides its prompt, without what it does not ask for. */
function askedIn(terms: ItemTerms): Record<string, string | number> {
  const { tier, ratio, keepsRatio, quality, background, askedSeed, negativePrompt } = terms;
  const asked = { tier, ratio: keepsRatio ? null : ratio, quality, background, askedSeed, negativePrompt };
  return Object.fromEntries(
    Object.entries(asked).flatMap(([name, value]) => (value === null ? [] : [[name, value]])),
  );
}
