import { shownSize } from "../../contract/image-formats.ts";
import { type ImageFacts, type ImageInspector, InvalidImageError } from "../ports/image-inspector.ts";
import {
  type GeneratedImages,
  type ImageProvider,
  type LargeImage,
  ProviderError,
} from "../ports/image-provider.ts";

/** No model makes larger images, so a larger one is damaged, or was made to do damage. */
const LIMITS = { maxPixels: 64 * 2 ** 20 };
const MAX_OUTPUT_BYTES = 64 * 2 ** 20;

/** An image that a provider made, and the facts that its bytes show. Width and height are those in which it is shown. */
export interface MadeImage<Image extends Buffer | LargeImage = Buffer | LargeImage> {
  image: Image;
  facts: ImageFacts;
}

/** Lends the bytes of an image to short work, which must not keep those of a large one. */
export function lendImage<T>(image: Buffer | LargeImage, work: (bytes: Buffer) => Promise<T>): Promise<T> {
  return Buffer.isBuffer(image) ? work(image) : image.lend(work);
}

/**
 * Decodes every image that a provider made, so that a broken image never becomes a success. An upstream is paid for
 * broken bytes too, so its failure is ambiguous. Throws `ProviderError`: `EMPTY_IMAGE_OUTPUT` without an image, else
 * `INVALID_IMAGE_OUTPUT`.
 */
export async function readOutput(
  output: GeneratedImages,
  inspector: ImageInspector,
  { upstream }: Pick<ImageProvider, "upstream">,
): Promise<GeneratedImages<MadeImage>> {
  const { images, modelVersion, usage = null } = output;
  if (images.length === 0) {
    throw new ProviderError("EMPTY_IMAGE_OUTPUT", "The provider answered without an image.", {
      modelVersion,
      usage,
    });
  }
  const trouble = upstream ? "ambiguous" : null;
  const unusable = (why: string, cause?: unknown) => {
    const message = `The provider returned bytes that are not a usable image: ${why}`;
    return new ProviderError("INVALID_IMAGE_OUTPUT", message, { modelVersion, trouble, cause, usage });
  };
  const made: MadeImage[] = [];
  for (const image of images) {
    if (image.length > MAX_OUTPUT_BYTES) throw unusable(`they are ${image.length} bytes, more than 64 MiB`);
    try {
      const facts = await lendImage(image, (bytes) => inspector.inspect(bytes, LIMITS));
      const { mimeType, decodedPixels } = facts;
      made.push({ image, facts: { mimeType, decodedPixels, ...shownSize(facts) } });
    } catch (error) {
      throw error instanceof InvalidImageError ? unusable(error.message, error) : error;
    }
  }
  return { ...output, images: made };
}
