import type { ImageMimeType, SizePx } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type ImageFacts, type ImageInspector, InvalidImageError } from "../ports/image-inspector.ts";
import type { SentImage } from "./sent-image.ts";

/** The part of an input image that is wrong: its declared type, its bytes, or the total size of all images. */
export interface InputImageProblem {
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

/** A photo that was taken upright can be stored on its side; the size as displayed counts. */
export function shownSize({ widthPx, heightPx, isTurned }: ImageFacts): SizePx {
  return isTurned ? { widthPx: heightPx, heightPx: widthPx } : { widthPx, heightPx };
}
