import type { ImageMimeType } from "../../contract/image-formats.ts";

/** Writes images in another way. */
export interface ImageConverter {
  /**
   * Returns the image in a type, as the bytes of a new file. `quality` is that of a JPEG or WebP in percent; null: a good
   * one. A JPEG shows white where the image is transparent.
   */
  convert(bytes: Buffer, to: { mimeType: ImageMimeType; quality: number | null }): Promise<Buffer>;
  /** Returns the image in its size, in a type, as if its longer side had only so many pixels. */
  soften(bytes: Buffer, to: { mimeType: ImageMimeType; edgePx: number }): Promise<Buffer>;
}

/** The facts that the bytes of an image show. */
export interface ImageFacts {
  mimeType: ImageMimeType;
  /** Width and height are those of the stored pixels. */
  widthPx: number;
  heightPx: number;
  /** The file says that it is to be shown on its side: width and height change places. */
  isTurned?: true;
  /** Pixels of all frames together: what decoding it cost. */
  decodedPixels: number;
}

/** Thrown for bytes that are not an image that the service accepts. The message names the problem. */
export class InvalidImageError extends Error {
  override name = "InvalidImageError";
}

/** Looks into image bytes. The only way by which the domain learns what an image is. */
export interface ImageInspector {
  /**
   * Decodes the whole image, off the main thread, and returns its facts.
   * Only PNG, JPEG and WebP bytes are ever handed to the decoder, and `maxPixels` is checked from the header first.
   * Throws `InvalidImageError` for anything else, for a truncated file, and for one above `maxPixels`.
   */
  inspect(bytes: Buffer, limits: { maxPixels: number }): Promise<ImageFacts>;
}
