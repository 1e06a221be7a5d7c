import { type ImageMimeType, sniffImageType } from "./image-types.ts";

/** The facts in the first bytes of an image. */
export interface ImageHeader {
  mimeType: ImageMimeType;
  /** Null when the header is damaged or does not fit into the bytes given. */
  widthPx: number | null;
  heightPx: number | null;
}

/** Enough for the header of any ordinary image, embedded previews and colour profiles of a JPEG included. */
export const HEADER_BYTES = 256 * 1024;

type Size = readonly [widthPx: number, heightPx: number];

const READERS: Record<ImageMimeType, (data: DataView) => Size | null> = {
  "image/png": (data) => [data.getUint32(16), data.getUint32(20)],
  "image/jpeg": jpegSize,
  "image/webp": webpSize,
};

/** Type and size of a PNG, JPEG or WebP from its first bytes; null when it is none of these. Never throws. */
export function readImageHeader(head: Uint8Array): ImageHeader | null {
  const mimeType = sniffImageType(head);
  if (mimeType === null) return null;
  const size = sizeOrNull(mimeType, new DataView(head.buffer, head.byteOffset, head.byteLength));
  return { mimeType, widthPx: size?.[0] ?? null, heightPx: size?.[1] ?? null };
}

function sizeOrNull(mimeType: ImageMimeType, data: DataView): Size | null {
  try {
    return READERS[mimeType](data);
  } catch {
    // A DataView throws when the header ends too early.
    return null;
  }
}

/** Walks the segments to the first start-of-frame marker. */
function jpegSize(data: DataView): Size | null {
  let at = 2;
  while (data.getUint8(at) === 0xff) {
    const marker = data.getUint8(at + 1);
    if (marker === 0xff || isBareMarker(marker)) {
      at += marker === 0xff ? 1 : 2;
      continue;
    }
    if (isFrameMarker(marker)) return [data.getUint16(at + 7), data.getUint16(at + 5)];
    at += 2 + data.getUint16(at + 2);
  }
  return null;
}

/** Whether a JPEG marker begins a frame header (SOF), which has the size. */
export function isFrameMarker(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

/** Whether a JPEG marker stands alone, without a length behind it: TEM, RST0 to RST7, SOI and EOI. */
export function isBareMarker(marker: number): boolean {
  return marker === 0x01 || (marker >= 0xd0 && marker <= 0xd9);
}

/** The three kinds of first chunk: lossy, lossless, extended. */
function webpSize(data: DataView): Size | null {
  const kind = String.fromCharCode(...[12, 13, 14, 15].map((at) => data.getUint8(at)));
  const uint24 = (at: number) => data.getUint16(at, true) | (data.getUint8(at + 2) << 16);
  if (kind === "VP8 ") return [data.getUint16(26, true) & 0x3fff, data.getUint16(28, true) & 0x3fff];
  if (kind === "VP8L") {
    const bits = data.getUint32(21, true);
    return [(bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1];
  }
  return kind === "VP8X" ? [uint24(24) + 1, uint24(27) + 1] : null;
}
