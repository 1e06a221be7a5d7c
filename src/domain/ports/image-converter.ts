import type { ImageMimeType } from "../../contract/image-formats.ts";

/** Writes images in another way. */
export interface ImageConverter {
  /**
   * Returns the image in a type, as the bytes of a new file. `quality` is that of a JPEG or WebP in percent; null: a good
   * one. A JPEG shows white where the image is transparent.
   */
  convert(bytes: Buffer, to: { mimeType: ImageMimeType; quality: number | null }): Promise<Buffer>;
}
