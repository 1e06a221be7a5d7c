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

/** A size in pixels, as OpenAI writes it: `1536x1024`. */
type PixelSize = `${number}x${number}`;
/** The size of an image: a tier, whose pixels follow from its ratio, or exact pixels. */
export type ImageSize = SizeTier | PixelSize;

/** Returns the pixels of `1536x1024`, 64 to 99999 each; null for any other text. */
export function readPixels(text: string): SizePx | null {
  const [, width, height] = /^(\d{2,5})x(\d{2,5})$/i.exec(text) ?? [];
  const [widthPx, heightPx] = [Number(width), Number(height)];
  return widthPx >= LEAST_SIDE_PX && heightPx >= LEAST_SIDE_PX ? { widthPx, heightPx } : null;
}
const LEAST_SIDE_PX = 64;

export const pixelSize = ({ widthPx, heightPx }: SizePx): PixelSize => `${widthPx}x${heightPx}`;

/** Returns a size as it is written in requests, such as `2k` or `1536X1024`; null for any other text. */
export function readImageSize(text: string): ImageSize | null {
  const tier = SIZE_TIERS.find((each) => each === text.toUpperCase());
  if (tier !== undefined) return tier;
  const pixels = readPixels(text);
  return pixels && pixelSize(pixels);
}

export function isTier(size: ImageSize): size is SizeTier {
  return SIZE_TIERS.some((tier) => tier === size);
}

/** Returns the tier whose square picture is nearest in area: twice as large counts as far as half as large. */
export function tierOf(size: ImageSize, tiers: readonly SizeTier[] = SIZE_TIERS): SizeTier {
  if (isTier(size)) return size;
  const area = areaOf(readPixels(size) ?? imageSizePx("1K", "1:1"));
  const distance = (tier: SizeTier) => Math.abs(Math.log(area / areaOf(imageSizePx(tier, "1:1"))));
  return tiers.reduce((best, tier) => (distance(tier) < distance(best) ? tier : best), tiers[0] ?? "1K");
}

const areaOf = ({ widthPx, heightPx }: SizePx) => widthPx * heightPx;

/** The pixels of an image of this size; of a tier, those of Google's models for its ratio. */
export function imageSizePx(size: ImageSize, ratio: AspectRatio): SizePx {
  const pixels = isTier(size) ? null : readPixels(size);
  if (pixels !== null) return pixels;
  const [width, height] = SIZES_1K[ratio];
  const factor = TIER_FACTORS[tierOf(size)];
  return { widthPx: width * factor, heightPx: height * factor };
}

/** All sizes whose sides are multiples of a number, within bounds. */
interface PixelRule {
  multipleOf: number;
  longestPx: number;
  leastPixels: number;
  mostPixels: number;
  /** The longer side is at most this many times the shorter one. */
  mostRatio: number;
}
/** The pixels that a model can be asked for: a list such as `["1024x1024", "1536x1024"]`, or a rule. */
export type PixelSizes = readonly string[] | PixelRule;

const isList = (pixels: PixelSizes): pixels is readonly string[] => Array.isArray(pixels);

/** Returns whether a model with these sizes can make a picture of exactly these pixels. */
export function makesPixels(pixels: PixelSizes, size: SizePx): boolean {
  if (isList(pixels)) return pixels.includes(pixelSize(size));
  const { multipleOf, longestPx, leastPixels, mostPixels, mostRatio } = pixels;
  const [short, long] = [size.widthPx, size.heightPx].sort((a, b) => a - b) as [number, number];
  const isEven = short % multipleOf === 0 && long % multipleOf === 0;
  const area = areaOf(size);
  return (
    isEven && long <= longestPx && area >= leastPixels && area <= mostPixels && long <= short * mostRatio
  );
}

/** A size of a list may be this far from its ratio, since sides are often rounded to multiples of 16 or 32. */
const RATIO_TOLERANCE = 0.02;

/**
 * Returns the pixels that a tier and a ratio stand for at a model that is asked for pixels; null when it cannot make them. Of
 * a list, it is the size of this ratio that is nearest to the tier. By a rule, it is the size that other models make; a 4K
 * picture is the largest of its ratio where that size is out of bounds.
 */
function pixelsFor(pixels: PixelSizes, tier: SizeTier, ratio: AspectRatio): SizePx | null {
  const usual = imageSizePx(tier, ratio);
  if (makesPixels(pixels, usual)) return usual;
  const [w = 1, h = 1] = ratio.split(":").map(Number);
  if (isList(pixels)) {
    const isOfRatio = ({ widthPx, heightPx }: SizePx) =>
      Math.abs((widthPx * h) / (heightPx * w) - 1) <= RATIO_TOLERANCE;
    const sizes = pixels.flatMap((text) => readPixels(text) ?? []).filter(isOfRatio);
    const ofTier = sizes.filter((size) => tierOf(pixelSize(size)) === tier);
    const distance = (size: SizePx) => Math.abs(Math.log(areaOf(size) / areaOf(usual)));
    return ofTier.sort((a, b) => distance(a) - distance(b))[0] ?? null;
  }
  if (tier !== "4K") return null;
  const { multipleOf, longestPx, mostPixels } = pixels;
  const long = Math.min(longestPx, Math.sqrt((mostPixels * Math.max(w, h)) / Math.min(w, h)));
  const exact = { widthPx: (long * w) / Math.max(w, h), heightPx: (long * h) / Math.max(w, h) };
  // A side is at most as long as it would be exactly, so that the picture stays within the bounds.
  const down = (px: number) => Math.floor(px / multipleOf + 1e-9) * multipleOf;
  const largest = { widthPx: down(exact.widthPx), heightPx: down(exact.heightPx) };
  return makesPixels(pixels, largest) ? largest : null;
}

/** Returns what pixels a model can be asked for, in words that follow "takes". */
export function wordsOfPixels(pixels: PixelSizes): string {
  if (isList(pixels)) return pixels.join(", ");
  const { multipleOf, longestPx, leastPixels, mostPixels, mostRatio } = pixels;
  return `sides that are multiples of ${multipleOf}, at most ${longestPx} long, from 1:${mostRatio} to ${mostRatio}:1, with ${leastPixels} to ${mostPixels} pixels`;
}

/** What a model that takes any pixels is asked for: pictures of fewer are bad at most of them. */
const ANY_PIXELS = {
  multipleOf: 16,
  longestPx: 16_384,
  leastPixels: 640 * 1024,
  mostPixels: 64e6,
  mostRatio: 8,
};

/**
 * Returns the smallest size of nearly the wanted shape, with no shorter side, at a model that takes all sizes by a rule; null
 * where it makes none, or takes those of a list.
 */
export function exactPixels(pixels: PixelSizes | "any", { widthPx, heightPx }: SizePx): SizePx | null {
  if (pixels !== "any" && isList(pixels)) return null;
  const rule = pixels === "any" ? ANY_PIXELS : pixels;
  const scale = Math.max(1, Math.sqrt(rule.leastPixels / (widthPx * heightPx)));
  const up = (px: number) => Math.ceil((px * scale) / rule.multipleOf - 1e-9) * rule.multipleOf;
  const size = { widthPx: up(widthPx), heightPx: up(heightPx) };
  return makesPixels(rule, size) ? size : null;
}

/** Returns a size that a model makes and that is near to a wanted one, for advice. */
function nearestPixels(pixels: PixelSizes, wanted: SizePx): PixelSize | null {
  const shape = (size: SizePx) => Math.log(size.widthPx / size.heightPx);
  const distance = (size: SizePx) =>
    Math.abs(shape(size) - shape(wanted)) + Math.abs(Math.log(areaOf(size) / areaOf(wanted))) / 10;
  const candidates = isList(pixels)
    ? pixels.flatMap((text) => readPixels(text) ?? [])
    : [roundedTo(pixels, wanted), ...tableSizes().map(({ px }) => px)].filter((px) =>
        makesPixels(pixels, px),
      );
  const [nearest] = candidates.sort((a, b) => distance(a) - distance(b));
  return nearest ? pixelSize(nearest) : null;
}

function roundedTo({ multipleOf }: PixelRule, { widthPx, heightPx }: SizePx): SizePx {
  const round = (px: number) => Math.max(1, Math.round(px / multipleOf)) * multipleOf;
  return { widthPx: round(widthPx), heightPx: round(heightPx) };
}

/** Every tier and ratio with its pixels, for models that are asked for these two alone. */
function tableSizes(): { tier: SizeTier; ratio: AspectRatio; px: SizePx }[] {
  return SIZE_TIERS.flatMap((tier) =>
    RATIOS.extended.map((ratio) => ({ tier, ratio, px: imageSizePx(tier, ratio) })),
  );
}

/** The sizes that a model can be asked for. */
export interface ShapeFacts {
  ratios: readonly AspectRatio[];
  tiers: readonly SizeTier[];
  /** The exact pixels that it takes besides; null: a tier and a ratio decide them. */
  pixels: PixelSizes | "any" | null;
}

/** Returns the pixels that a tier and a ratio stand for at a model with these pixels; null when it cannot make them. */
export function pixelsAt(
  pixels: PixelSizes | "any" | null,
  tier: SizeTier,
  ratio: AspectRatio,
): SizePx | null {
  return pixels === null || pixels === "any" ? imageSizePx(tier, ratio) : pixelsFor(pixels, tier, ratio);
}

/** Returns the size that makes exactly these pixels: a tier with its ratio where one stands for them. Null: there is none. */
export function sizeOfPixels(
  facts: ShapeFacts,
  wanted: SizePx,
): { size: ImageSize; ratio: AspectRatio } | null {
  const { ratios, tiers, pixels } = facts;
  const isUsual = (size: SizeTier, ratio: AspectRatio) =>
    pixelSize(imageSizePx(size, ratio)) === pixelSize(wanted);
  for (const size of tiers)
    for (const ratio of ratios)
      if (isUsual(size, ratio) && (pixels === null || pixels === "any" || makesPixels(pixels, wanted)))
        return { size, ratio };
  if (pixels === null || (pixels !== "any" && !makesPixels(pixels, wanted))) return null;
  return { size: pixelSize(wanted), ratio: nearestRatio(wanted, { ratios: RATIOS.extended }) };
}

/** Returns in words what pixels can be asked for, and which are nearest to the wanted ones. For a message behind "takes". */
export function pixelAdvice({ ratios, tiers, pixels }: ShapeFacts, wanted: SizePx): string {
  const hasOwn = pixels !== null && pixels !== "any";
  const table = tiers.flatMap((tier) => ratios.flatMap((ratio) => pixelsAt(pixels, tier, ratio) ?? []));
  const nearest = nearestPixels(hasOwn ? pixels : table.map(pixelSize), wanted);
  const words = hasOwn ? wordsOfPixels(pixels) : "the pixels of its sizes and ratios";
  return nearest === null ? words : `${words}; the nearest is ${nearest}`;
}

/**
 * The ratio whose pictures are nearest to the shape of an image: twice as wide counts as far as twice as high.
 */
export function nearestRatio(image: SizePx, { ratios }: Pick<ShapeFacts, "ratios">): AspectRatio {
  const shape = shapeOf(image);
  const distance = (ratio: AspectRatio) => Math.abs(shape - shapeOf(imageSizePx("1K", ratio)));
  return ratios.reduce((best, ratio) => (distance(ratio) < distance(best) ? ratio : best), DEFAULT_RATIO);
}

const shapeOf = ({ widthPx, heightPx }: SizePx) => Math.log(widthPx / heightPx);

/** How a picture comes into given pixels: its edges are cut, it gets a border, it is stretched, or one side stays shorter. */
export const FITS = ["cover", "contain", "fill", "inside"] as const;
export type Fit = (typeof FITS)[number];

export const FILE_FORMATS = ["png", "jpeg", "webp", "avif"] as const;
export type FileFormat = (typeof FILE_FORMATS)[number];

/** The form in which a file shows a picture. What is absent is as usual. */
export interface FileForm {
  /** `1200x630`, or one side: `1200x`, `x630`. Absent: as many as the picture has. */
  pixels?: string | undefined;
  /** Default: `cover`. */
  fit?: Fit | undefined;
  /** The part of the picture that stays, or its place within a border. Default: `attention` where it is cut, else `center`. */
  position?: string | undefined;
  format: FileFormat;
  /** 1 to 100. Default: what is usual for the format. */
  encode_quality?: number | undefined;
  /** The flat or transparent border is cut off first. */
  trim?: true | undefined;
}

/** Returns the sides of the pixels of a form; null for a side that follows from the picture. */
export function sidesOf(pixels: string): { widthPx: number | null; heightPx: number | null } {
  const [width = "", height = ""] = pixels.split("x");
  const side = (text: string) => (text === "" ? null : Number(text));
  return { widthPx: side(width), heightPx: side(height) };
}

/** Returns how many times a picture of this size is enlarged to have the pixels of a form; at most 1 where it is large enough. */
export function enlargementOf(
  size: SizePx,
  { pixels, fit = "cover" }: Pick<FileForm, "pixels" | "fit">,
): number {
  if (pixels === undefined) return 1;
  const { widthPx, heightPx } = sidesOf(pixels);
  const [across, down] = [(widthPx ?? 0) / size.widthPx, (heightPx ?? 0) / size.heightPx];
  const isWhole = (fit === "contain" || fit === "inside") && widthPx !== null && heightPx !== null;
  return isWhole ? Math.min(across, down) : Math.max(across, down);
}

/** The kinds of pictures that a program has made, as the IPTC's vocabulary of digital sources calls them. */
export type DigitalSource =
  | "trainedAlgorithmicMedia"
  | "compositeWithTrainedAlgorithmicMedia"
  | "algorithmicMedia";

/** The facts in the first bytes of an image. */
interface ImageHeader {
  mimeType: ImageMimeType;
  /** Null when the header is damaged or does not fit into the bytes given. */
  widthPx: number | null;
  heightPx: number | null;
  /** The file says that it is to be shown on its side: width and height change places. Not known where that stands behind the bytes given. */
  isTurned?: true;
}

/** How a note begins when an image is not of the size or type that was asked for. */
export const DIFFERS = "asked for ";

/** Enough for the header of any ordinary image, embedded previews and colour profiles of a JPEG included. */
export const HEADER_BYTES = 256 * 1024;

type Size = readonly [widthPx: number, heightPx: number];

type Reader<T> = (data: DataView) => T | null;

const READERS: Record<ImageMimeType, { size: Reader<Size>; exif: Reader<number> }> = {
  "image/png": {
    size: (data) => [data.getUint32(16), data.getUint32(20)],
    exif: (data) => exifChunk(CHUNK_FORMS["image/png"], data),
  },
  "image/jpeg": { size: jpegSize, exif: jpegExif },
  "image/webp": { size: webpSize, exif: (data) => exifChunk(CHUNK_FORMS["image/webp"], data) },
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

/** How the chunks of a file follow each other. The one with its EXIF may stand behind the picture. */
interface ChunkForm {
  /** Where the first chunk begins. */
  start: number;
  exif: number;
  /** Reads the first 8 bytes of a chunk. `next`: how far the next chunk is from its end. */
  read(data: DataView, at: number): { name: number; bytes: number; next: number };
}

const CHUNK_FORMS: Record<Exclude<ImageMimeType, "image/jpeg">, ChunkForm> = {
  "image/png": {
    start: 8,
    exif: 0x65584966,
    read: (data, at) => ({ name: data.getUint32(at + 4), bytes: data.getUint32(at), next: 4 }),
  },
  "image/webp": {
    start: 12,
    exif: 0x45584946,
    read: (data, at) => {
      const bytes = data.getUint32(at + 4, true);
      return { name: data.getUint32(at), bytes, next: bytes % 2 };
    },
  },
};

const CHUNK_HEADER_BYTES = 8;

function exifChunk(form: ChunkForm, data: DataView): number | null {
  for (let at = form.start, count = 0; count < FIXED_LIMITS.imageChunks; count++) {
    const { name, bytes, next } = form.read(data, at);
    if (name === form.exif) return exifStart(data, at + CHUNK_HEADER_BYTES);
    at += CHUNK_HEADER_BYTES + bytes + next;
  }
  return null;
}

/** Some programs write the beginning of a JPEG's segment into the chunk, too. */
function exifStart(data: DataView, at: number): number {
  return data.getUint32(at) === EXIF ? at + 6 : at;
}

/** The orientation stands at the beginning. */
const MOST_EXIF_BYTES = 64 * 1024;

/** Reads type and size of an image that comes in pieces, and keeps little of it. */
export class HeaderReader {
  #head: Uint8Array[] = [];
  #headBytes = 0;
  /** The place of the next byte. */
  #at = 0;
  #form: ChunkForm | null = null;
  /** What is being collected behind the head, and from where on. */
  #found: number[] = [];
  #from = 0;
  #most = CHUNK_HEADER_BYTES;
  #isExif = false;
  /** Of the chunks behind the head. */
  #count = 0;

  write(piece: Uint8Array): void {
    const at = this.#at;
    this.#at += piece.length;
    if (this.#headBytes < HEADER_BYTES) {
      this.#head.push(piece);
      this.#headBytes += piece.length;
      if (this.#headBytes >= HEADER_BYTES) this.#leaveHead();
      return;
    }
    while (this.#form !== null && this.#at > this.#from + this.#found.length) {
      const begin = Math.max(0, this.#from + this.#found.length - at);
      this.#found.push(...piece.subarray(begin, begin + this.#most - this.#found.length));
      if (this.#found.length < this.#most) return;
      this.#take(this.#form);
    }
  }

  /** Null when it is no PNG, JPEG or WebP. */
  read(): ImageHeader | null {
    const header = readImageHeader(joined(this.#head));
    if (header === null || !this.#isExif) return header;
    const data = new DataView(Uint8Array.from(this.#found).buffer);
    const isTurned = orNull((all) => isTurnedBy(all, exifStart(all, 0)), data) === true;
    return isTurned ? { ...header, isTurned } : header;
  }

  /** Finds the first chunk whose beginning is not in the head. */
  #leaveHead(): void {
    const head = joined(this.#head);
    const data = new DataView(head.buffer, head.byteOffset, head.byteLength);
    const mimeType = sniffImageType(head);
    if (mimeType === null || mimeType === "image/jpeg") return;
    const form = CHUNK_FORMS[mimeType];
    let at = form.start;
    for (let count = 0; count < FIXED_LIMITS.imageChunks; count++) {
      if (at + CHUNK_HEADER_BYTES > head.length) {
        this.#form = form;
        this.#from = at;
        this.#found = [...head.subarray(at)];
        return;
      }
      const { name, bytes, next } = form.read(data, at);
      if (name === form.exif) return;
      at += CHUNK_HEADER_BYTES + bytes + next;
    }
  }

  #take(form: ChunkForm): void {
    if (this.#isExif || ++this.#count > FIXED_LIMITS.imageChunks) {
      this.#form = null;
      return;
    }
    const { name, bytes, next } = form.read(new DataView(Uint8Array.from(this.#found).buffer), 0);
    this.#isExif = name === form.exif;
    this.#from += CHUNK_HEADER_BYTES + (this.#isExif ? 0 : bytes + next);
    this.#most = this.#isExif ? Math.min(bytes, MOST_EXIF_BYTES) : CHUNK_HEADER_BYTES;
    this.#found = [];
  }
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
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
