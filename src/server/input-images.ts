import type { ImageMimeType, SizePx } from "../contract/image-formats.ts";
import { type InputImageProblem, InputImages, shownSize } from "../domain/images/input-images.ts";
import type { SentImage } from "../domain/images/sent-image.ts";
import type { ImageInspector } from "../domain/ports/image-inspector.ts";
import type { CheckedImage } from "../domain/realtime/checked-content.ts";
import { fieldError } from "./request-problems.ts";

/** An image of a request before its bytes were looked into. `fields`: where each kind of problem belongs. */
export interface ReceivedImage {
  image: SentImage;
  /** The declared type; null when it does not matter. */
  declared: ImageMimeType | null;
  fields: Record<InputImageProblem["about"], string>;
}

/** Looks into the input images of one real-time request, in their order. */
export class ImageChecker {
  readonly images: CheckedImage[] = [];
  /** The size of the first one, as it is shown; null before it. */
  first: SizePx | null = null;
  readonly #inputs: InputImages;

  constructor(inspector: ImageInspector) {
    this.#inputs = new InputImages(inspector);
  }

  /** Throws `REALTIME_INVALID_ARGUMENT`. */
  async add({ image, declared, fields }: ReceivedImage): Promise<void> {
    const facts = await this.#inputs.check(image, declared);
    if ("problem" in facts) {
      throw fieldError("REALTIME_INVALID_ARGUMENT", fields[facts.about], facts.problem);
    }
    this.images.push({
      read: () => image.read(),
      lend: (work) => image.lend(work),
      keepAs: (blobs, key) => image.keepAs(blobs, key),
      sha256: image.sha256,
      mimeType: facts.mimeType,
    });
    this.first ??= shownSize(facts);
  }
}
