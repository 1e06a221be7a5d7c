import { chunkType, pngChunks } from "./image-chunks.ts";
import type { ImageMimeType } from "./image-types.ts";

/**
 * The part that is missing at the end of an image file, or null. Decoders stop at the last pixel, so they do not notice a
 * file that was cut just behind it. Bytes after the end are fine: some cameras and editors append.
 */
export function missingEnd(bytes: Buffer, mimeType: ImageMimeType): string | null {
  switch (mimeType) {
    case "image/png":
      return hasPngEnd(bytes) ? null : "it has no IEND chunk";
    case "image/jpeg":
      return bytes.lastIndexOf(JPEG_END) > jpegScan(bytes) ? null : "it has no end-of-image marker";
    case "image/webp": {
      if (bytes.length < 12) return "it ends within its header";
      const announced = bytes.readUInt32LE(4) + 8;
      return bytes.length >= announced
        ? null
        : `its header announces ${announced} bytes, and ${bytes.length} came`;
    }
  }
}

const JPEG_END = Buffer.from([0xff, 0xd9]);

/**
 * Returns the offset of the first scan, because a preview in the header has its own end marker. Returns 0 if the
 * segments do not lead there.
 */
function jpegScan(bytes: Buffer): number {
  let at = 2;
  while (at + 4 <= bytes.length && bytes[at] === 0xff) {
    const marker = bytes[at + 1];
    if (marker === 0xda) return at;
    at += marker === 0xff ? 1 : 2 + bytes.readUInt16BE(at + 2);
  }
  // The segments go on behind the end of the file.
  return at >= bytes.length ? bytes.length : 0;
}

const PNG_END = chunkType("IEND");

function hasPngEnd(bytes: Buffer): boolean {
  for (const { type } of pngChunks(bytes)) if (type === PNG_END) return true;
  return false;
}
