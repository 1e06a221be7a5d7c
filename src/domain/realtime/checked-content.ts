import type { AspectRatio, ImageMimeType, ImageSize } from "../../contract/image-formats.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import type { ModelEntry, Needs } from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import {
  type AskedOptions,
  type Carried,
  DECISIVE_FIELDS,
  type ReferenceImage,
  type VerbatimRequest,
} from "../ports/image-provider.ts";

/** An input image that has passed every check. */
export interface CheckedImage extends ReferenceImage {
  /** Lower-case hexadecimal. */
  sha256: string;
  /** Makes it a blob; at most once. */
  keepAs(blobs: BlobStore, key: string): Promise<void>;
}

/** A real-time request that has passed every check that needs no database. */
export interface CheckedContent {
  /** The model that was asked for. */
  model: ModelEntry;
  /** The text of the user's last turn. */
  prompt: string;
  /** The texts of the user's earlier turns, as far as they are passed on. */
  earlier: string;
  images: readonly CheckedImage[];
  /** As in `ImageRequest`. */
  mask?: CheckedImage;
  ratio: AspectRatio;
  /** As in `ImageRequest`. Not part of the fingerprint. */
  keepsRatio: boolean;
  size: ImageSize;
  mimeType: ImageMimeType;
  /** As in `ImageRequest`. `seed` is that of the first image. */
  asked?: AskedOptions;
  /** As in `ImageRequest`. */
  verbatim?: VerbatimRequest;
  /** The fields of the request that have no effect, whatever makes the image. Not part of the fingerprint. */
  ignored?: readonly string[];
}

/** Returns what a request needs from its provider. */
export function needsOf({ images, mask, ratio, size, asked, verbatim }: CheckedContent): Needs {
  const options = Object.entries({ ...asked, mask: mask ?? null }).filter(([, value]) => value !== null);
  return {
    references: images.length,
    ratios: [ratio],
    sizes: [size],
    options: [...options.map(([name]) => name as Carried), ...decisiveFields(verbatim)],
  };
}

/** Returns which of a request's fields change the picture, so that no provider may leave them out. */
function decisiveFields(verbatim: VerbatimRequest | undefined): Carried[] {
  return DECISIVE_FIELDS.filter((name) => verbatim?.fields[name] !== undefined);
}

type Json = Parameters<typeof canonicalJson>[0];

/**
 * SHA-256 over an operation and everything that it is asked for, in lower-case hexadecimal: requests that ask for the same
 * have equal ones, however they were written.
 */
export function contentFingerprint(operation: string, request: CheckedContent): string {
  const {
    model,
    images,
    mask,
    keepsRatio: _keepsRatio,
    ignored: _ignored,
    asked,
    verbatim,
    ...facts
  } = request;
  const sent = images.map(({ sha256, mimeType }) => ({ sha256, mimeType }));
  const more = {
    ...(mask && { mask: mask.sha256 }),
    ...(asked && { asked: { ...asked } }),
    ...(verbatim && { [verbatim.api]: verbatim.fields as Json }),
  };
  return sha256Hex(canonicalJson({ operation, model: model.id, images: sent, ...facts, ...more }));
}
