import { FIXED_LIMITS } from "./limits.ts";

/** The image types that the service reads and writes, with the file extension of each. */
export const IMAGE_EXTENSIONS = {
  "image/png": "png",
  "image/jpeg": "jpg",
  "image/webp": "webp",
} as const;
export type ImageMimeType = keyof typeof IMAGE_EXTENSIONS;
export const IMAGE_MIME_TYPES = Object.keys(IMAGE_EXTENSIONS) as ImageMimeType[];

export function isImageMimeType(value: string): value is ImageMimeType {
  return Object.hasOwn(IMAGE_EXTENSIONS, value);
}

/** Returns the type that the ending of a file name stands for; null for any other ending. */
export function typeOfFileName(name: string): ImageMimeType | null {
  const ending = /\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase().replace("jpeg", "jpg");
  return IMAGE_MIME_TYPES.find((type) => IMAGE_EXTENSIONS[type] === ending) ?? null;
}

/** The first bytes of each type: a PNG signature, JPEG markers, `RIFF????WEBP`. Null stands for any byte. */
export const IMAGE_HEADS: Record<ImageMimeType, readonly (number | null)[]> = {
  "image/png": [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
  "image/jpeg": [0xff, 0xd8, 0xff],
  "image/webp": [0x52, 0x49, 0x46, 0x46, null, null, null, null, 0x57, 0x45, 0x42, 0x50],
};

/**
 * Returns the image type that the first bytes announce, whatever a header or a file name says. Twelve bytes are enough.
 * Returns null for any type that is not accepted.
 */
export function sniffImageType(head: Uint8Array): ImageMimeType | null {
  const hasHead = (type: ImageMimeType) =>
    IMAGE_HEADS[type].every((byte, i) => byte === null || head[i] === byte);
  return IMAGE_MIME_TYPES.find(hasHead) ?? null;
}

/** What is behind the subject of a picture. A JPEG has no transparency. */
export const BACKGROUNDS = ["transparent", "opaque", "auto"] as const;
export type Background = (typeof BACKGROUNDS)[number];

/** The largest seed of an image. */
export const MOST_SEED = 2 ** 32 - 1;

/** Size tiers: a tier and a ratio together give the pixels (`imageSizePx`). */
export const SIZE_TIERS = ["512", "1K", "2K", "4K"] as const;
export type SizeTier = (typeof SIZE_TIERS)[number];

const COMMON_RATIOS = ["1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"] as const;
/** The sets of ratios that a model can make. */
export const RATIOS = {
  common: COMMON_RATIOS,
  extended: [...COMMON_RATIOS, "1:4", "1:8", "4:1", "8:1"],
} as const;
export type AspectRatio = (typeof RATIOS.extended)[number];

/** The ratio of a batch image: batches cannot ask for one. */
export const DEFAULT_RATIO: AspectRatio = "1:1";

export interface SizePx {
  widthPx: number;
  heightPx: number;
}

/** Width and height at 1K; 512, 2K and 4K are exactly half, twice and four times these. */
const SIZES_1K: Record<AspectRatio, readonly [number, number]> = {
  "1:1": [1024, 1024],
  "2:3": [848, 1264],
  "3:2": [1264, 848],
  "3:4": [896, 1200],
  "4:3": [1200, 896],
  "4:5": [928, 1152],
  "5:4": [1152, 928],
  "9:16": [768, 1376],
  "16:9": [1376, 768],
  "21:9": [1584, 672],
  "1:4": [512, 2048],
  "4:1": [2048, 512],
  "1:8": [384, 3072],
  "8:1": [3072, 384],
};
/** The enlargement of each tier, relative to the width and height at 1K. */
export const TIER_FACTORS: Record<SizeTier, number> = { "512": 0.5, "1K": 1, "2K": 2, "4K": 4 };

/** The pixels of an image of this tier and ratio. */
export function imageSizePx(tier: SizeTier, ratio: AspectRatio): SizePx {
  const [width, height] = SIZES_1K[ratio];
  const factor = TIER_FACTORS[tier];
  return { widthPx: width * factor, heightPx: height * factor };
}

/** The facts in the first bytes of an image. */
interface ImageHeader {
  mimeType: ImageMimeType;
  /** Null when the header is damaged or does not fit into the bytes given. */
  widthPx: number | null;
  heightPx: number | null;
  /** The file says that it is to be shown on its side: width and height change places. Not known where that stands behind the bytes given. */
  isTurned?: true;
}

/** Enough for the header of any ordinary image, embedded previews and colour profiles of a JPEG included. */
export const HEADER_BYTES = 256 * 1024;

type Size = readonly [widthPx: number, heightPx: number];

type Reader<T> = (data: DataView) => T | null;

const READERS: Record<ImageMimeType, { size: Reader<Size>; exif: Reader<number> }> = {
  "image/png": { size: (data) => [data.getUint32(16), data.getUint32(20)], exif: pngExif },
  "image/jpeg": { size: jpegSize, exif: jpegExif },
  "image/webp": { size: webpSize, exif: webpExif },
};

/** Type and size of a PNG, JPEG or WebP from its first bytes; null when it is none of these. Never throws. */
export function readImageHeader(head: Uint8Array): ImageHeader | null {
  const mimeType = sniffImageType(head);
  if (mimeType === null) return null;
  const data = new DataView(head.buffer, head.byteOffset, head.byteLength);
  const size = orNull(READERS[mimeType].size, data);
  const isTurned = orNull((all) => isTurnedBy(all, READERS[mimeType].exif(all)), data) === true;
  const facts = { mimeType, widthPx: size?.[0] ?? null, heightPx: size?.[1] ?? null };
  return isTurned ? { ...facts, isTurned } : facts;
}

/** Returns the size in which an image is shown: turned as the file says. */
export function shownSize<Px extends number | null>(header: {
  widthPx: Px;
  heightPx: Px;
  isTurned?: true;
}): { widthPx: Px; heightPx: Px } {
  const { widthPx, heightPx, isTurned } = header;
  return isTurned ? { widthPx: heightPx, heightPx: widthPx } : { widthPx, heightPx };
}

function orNull<T>(read: Reader<T>, data: DataView): T | null {
  try {
    return read(data);
  } catch {
    // A DataView throws when the header ends too early.
    return null;
  }
}

const [TIFF_LITTLE_ENDIAN, ORIENTATION, SHORT] = [0x4949, 0x0112, 3];

/** Whether an EXIF block that begins at an offset says that the image lies on its side. */
function isTurnedBy(data: DataView, exif: number | null): boolean {
  if (exif === null) return false;
  const isLittle = data.getUint16(exif) === TIFF_LITTLE_ENDIAN;
  const directory = exif + data.getUint32(exif + 4, isLittle);
  for (let i = 0; i < data.getUint16(directory, isLittle); i++) {
    const entry = directory + 2 + 12 * i;
    if (data.getUint16(entry, isLittle) !== ORIENTATION) continue;
    const orientation = data.getUint16(entry + 8, isLittle);
    return data.getUint16(entry + 2, isLittle) === SHORT && orientation >= 5 && orientation <= 8;
  }
  return false;
}

/** The segments of a JPEG that have a length, with their offsets. */
function* jpegSegments(data: DataView): Generator<{ marker: number; at: number }> {
  let at = 2;
  while (data.getUint8(at) === 0xff) {
    const marker = data.getUint8(at + 1);
    if (marker === 0xff || isBareMarker(marker)) {
      at += marker === 0xff ? 1 : 2;
      continue;
    }
    yield { marker, at };
    at += 2 + data.getUint16(at + 2);
  }
}

/** Walks the segments to the first start-of-frame marker. */
function jpegSize(data: DataView): Size | null {
  for (const { marker, at } of jpegSegments(data))
    if (isFrameMarker(marker)) return [data.getUint16(at + 7), data.getUint16(at + 5)];
  return null;
}

const [APP1, EXIF] = [0xe1, 0x45786966];

function jpegExif(data: DataView): number | null {
  for (const { marker, at } of jpegSegments(data)) {
    if (marker === APP1 && data.getUint32(at + 4) === EXIF) return at + 10;
    if (isFrameMarker(marker)) return null;
  }
  return null;
}

const PNG_EXIF = 0x65584966;

function pngExif(data: DataView): number | null {
  for (let at = 8, count = 0; count < FIXED_LIMITS.imageChunks; count++) {
    if (data.getUint32(at + 4) === PNG_EXIF) return at + 8;
    at += 12 + data.getUint32(at);
  }
  return null;
}

const EXIF_CHUNK = 0x45584946;

/** Some programs write the beginning of a JPEG's segment into the chunk, too. */
function webpExif(data: DataView): number | null {
  for (let at = 12, count = 0; count < FIXED_LIMITS.imageChunks; count++) {
    const bytes = data.getUint32(at + 4, true);
    if (data.getUint32(at) === EXIF_CHUNK) return data.getUint32(at + 8) === EXIF ? at + 14 : at + 8;
    at += 8 + bytes + (bytes % 2);
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
