import { type ImageFacts, type ImageInspector, InvalidImageError } from "../ports/image-inspector.ts";
import { ProviderError } from "../ports/image-provider.ts";

/** No provider makes larger images, so a larger one is damaged. */
const MAX_OUTPUT_PIXELS = 100_000_000;

/** An image that a provider made, and the facts that its bytes show. */
export interface MadeImage {
  bytes: Buffer;
  facts: ImageFacts;
}

/**
 * Decodes every image that a provider made, so that a broken image never becomes a success.
 * Throws `ProviderError` `INVALID_IMAGE_OUTPUT`.
 */
export async function readOutput(images: readonly Buffer[], inspector: ImageInspector): Promise<MadeImage[]> {
  const made: MadeImage[] = [];
  for (const bytes of images) {
    try {
      made.push({ bytes, facts: await inspector.inspect(bytes, { maxPixels: MAX_OUTPUT_PIXELS }) });
    } catch (error) {
      if (!(error instanceof InvalidImageError)) throw error;
      const message = `The provider returned bytes that are not a usable image: ${error.message}`;
      throw new ProviderError("INVALID_IMAGE_OUTPUT", message, { cause: error });
    }
  }
  return made;
}
