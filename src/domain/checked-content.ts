import { type ImageMimeType, MOST_SEED } from "../contract/image-formats.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { canonicalJson } from "../kernel/json.ts";
import type { SentImage } from "./images/sent-image.ts";
import {
  type Carried,
  DECISIVE_FIELDS,
  DEFAULT_OPTIONS,
  type ImageOptions,
  type Needs,
  PASSED_ON,
  type VerbatimRequest,
} from "./ports/image-provider.ts";

/** An input image that has passed every check. */
export interface CheckedImage extends SentImage {
  mimeType: ImageMimeType;
  /** The caller's names of the image and of its kind, which come back in lists. Null: it has none. */
  id: string | null;
  type: string | null;
}

/**
 * An image that a caller asks for, after every check that needs no database: an item of a batch, a line of a job, or a
 * real-time request.
 */
export interface CheckedContent {
  /** The text of the user's last turn. */
  prompt: string;
  /** The texts of the user's earlier turns, as far as they are passed on. Empty without any. */
  earlier: string;
  images: readonly CheckedImage[];
  /** As in `ImageRequest`. */
  mask?: CheckedImage;
  options: ImageOptions;
  /** As in `ImageRequest`. */
  verbatim?: VerbatimRequest;
  /** As in `ImageRequest`. Not part of the fingerprint. */
  partialImages?: number;
  /** The fields of the request that have no effect, whatever makes the image. Not part of the fingerprint. */
  ignored?: readonly string[];
}

export const NO_NEEDS: Needs = { references: 0, ratios: [], sizes: [], options: [] };

/** Returns what a provider must be able to do that makes all of these images, and what is needed before. */
export function needsOf(contents: readonly CheckedContent[], before: Needs = NO_NEEDS): Needs {
  const ratios = new Set(before.ratios);
  const sizes = new Set(before.sizes);
  const carried = new Set<Carried>(before.options);
  let { references } = before;
  for (const { images, mask, options, verbatim } of contents) {
    references = Math.max(references, images.length);
    ratios.add(options.ratio);
    sizes.add(options.size);
    for (const name of PASSED_ON) if (options[name] !== null) carried.add(name);
    if (mask) carried.add("mask");
    for (const name of DECISIVE_FIELDS) if (verbatim?.fields[name] !== undefined) carried.add(name);
  }
  return { references, ratios: [...ratios], sizes: [...sizes], options: [...carried] };
}

/** Returns what an image asks for beyond what it has anyway, in the words of the batch API; null for nothing. */
export function askedOptions(options: ImageOptions): Record<string, string | number> | null {
  const { size, ratio, keepsRatio, quality, background, seed, negativePrompt } = options;
  const asked = {
    aspect_ratio: keepsRatio ? null : ratio,
    image_size: size === DEFAULT_OPTIONS.size ? null : size,
    quality,
    background,
    seed,
    negative_prompt: negativePrompt,
  };
  const given = Object.entries(asked).flatMap(([name, value]) => (value === null ? [] : [[name, value]]));
  return given.length === 0 ? null : Object.fromEntries(given);
}

/** Returns the seed of an output, counted from 0: each output after the first one adds 1. Null: no seed was asked for. */
export function outputSeed({ seed }: ImageOptions, index: number): number | null {
  return seed === null ? null : (seed + index) % (MOST_SEED + 1);
}

type Json = Parameters<typeof canonicalJson>[0];

/**
 * SHA-256 over an operation and everything that it is asked for, in lower-case hexadecimal: requests that ask for the same
 * have equal ones, however they were written.
 */
export function contentFingerprint(operation: string, model: string, content: CheckedContent): string {
  const { prompt, earlier, images, mask, options, verbatim } = content;
  const { keepsRatio: _, ...asked } = options;
  const more = {
    ...(mask && { mask: mask.sha256 }),
    ...(verbatim && { [verbatim.api]: verbatim.fields as Json }),
  };
  const sent = images.map(({ sha256, mimeType }) => ({ sha256, mimeType }));
  return sha256Hex(canonicalJson({ operation, model, prompt, earlier, images: sent, ...asked, ...more }));
}
