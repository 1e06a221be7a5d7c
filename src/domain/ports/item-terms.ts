import type { AspectRatio, ImageMimeType, SizeTier } from "../../contract/image-formats.ts";

/** The parts of an item that can differ from the rest of its batch. Null: as the batch has it. */
export interface ItemTerms {
  tier: SizeTier | null;
  ratio: AspectRatio | null;
  /** As in `ImageRequest`. */
  keepsRatio: boolean;
  /** The type that the image is asked for in. */
  askedMimeType: ImageMimeType | null;
  /** The user's texts before the prompt, the newest last. */
  earlier: string | null;
  /** The price of the image, and the hold for it. */
  priceMicroUsd: number | null;
  holdMicroUsd: number | null;
  /** The name that the client gave to the line, as JSON. It comes back with the result, and may repeat. */
  clientKey: string | null;
}

/** An item as its batch has it, in every respect. */
export const BATCH_TERMS: ItemTerms = {
  tier: null,
  ratio: null,
  keepsRatio: false,
  askedMimeType: null,
  earlier: null,
  priceMicroUsd: null,
  holdMicroUsd: null,
  clientKey: null,
};
