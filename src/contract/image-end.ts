import type { ImageMimeType } from "./image-types.ts";

/**
 * What is missing at the end of an image file, or null when its end is there. Decoders stop at the last pixel and so
 * never notice that a file was cut just behind it. Bytes after the end are fine: some cameras and editors append.
 */
export function missingEnd(bytes: Buffer, mimeType: ImageMimeType): string | null {
  switch (mimeType) {
    case "image/png":
      return hasPngEnd(bytes) ? null : "it has no IEND chunk";
    case "image/jpeg":
      return bytes.lastIndexOf(Buffer.from([0xff, 0xd9])) > 0 ? null : "it has no end-of-image marker";
    case "image/webp": {
      if (bytes.length < 12) return "it ends within its header";
      const announced = bytes.readUInt32LE(4) + 8;
      return bytes.length >= announced
        ? null
        : `its header announces ${announced} bytes, and ${bytes.length} came`;
    }
  }
}

function hasPngEnd(bytes: Buffer): boolean {
  let at = 8;
  while (at + 12 <= bytes.length) {
    const length = bytes.readUInt32BE(at);
    if (bytes.toString("latin1", at + 4, at + 8) === "IEND") return true;
    at += length + 12;
  }
  return false;
}
