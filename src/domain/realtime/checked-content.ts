import type { AspectRatio, SizeTier } from "../../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import type { ModelEntry } from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { ReferenceImage } from "../ports/image-provider.ts";

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
  ratio: AspectRatio;
  size: SizeTier;
  mimeType: ImageMimeType;
}
