import { createHash } from "node:crypto";
import type { AspectRatio, ImageMimeType } from "../../contract/image-formats.ts";
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

/** The most text that is hashed at a time. */
const PIECE_CHARS = 64 * 1024;

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
  // The canonical JSON of it all, in pieces: the whole text would be copied several times. "items" sorts first.
  const hash = createHash("sha256");
  let piece = '{"items":[';
  for (const [index, { customId, prompt, outputCount, references }] of request.items.entries()) {
    const facts =
      references.length === 0 ? "[]" : canonicalJson(references.map(({ image: _, ...each }) => each));
    if (index > 0) piece += ",";
    piece += `{"customId":${JSON.stringify(customId)},"outputCount":${outputCount},"prompt":${JSON.stringify(prompt)},"references":${facts}}`;
    if (piece.length < PIECE_CHARS) continue;
    hash.update(piece);
    piece = "";
  }
  piece += `],${canonicalJson({ model, taskName, parentBatchId, mimeType, metadata }).slice(1)}`;
  return hash.update(piece).digest("hex");
}
