import type { Sharp } from "sharp";
import type { ImageMimeType } from "../contract/image-formats.ts";

/** Encodes for speed first: these files are made many a second, and their bytes never depend on the machine's load. */
export function encodePicture(picture: Sharp, mimeType: ImageMimeType): Promise<Buffer> {
  switch (mimeType) {
    case "image/png":
      return picture.removeAlpha().png({ compressionLevel: 6, adaptiveFiltering: false }).toBuffer();
    case "image/jpeg":
      return picture.flatten({ background: "#ffffff" }).jpeg({ quality: 88 }).toBuffer();
    case "image/webp":
      return picture.removeAlpha().webp({ quality: 86, effort: 1 }).toBuffer();
  }
}
