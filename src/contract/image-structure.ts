import {
  type ImageMimeType,
  isBareMarker,
  isFrameMarker,
  readImageHeader,
  sniffImageType,
} from "./image-formats.ts";
import { FIXED_LIMITS } from "./limits.ts";

/** A part of a PNG or WebP file. */
interface ImageChunk {
  /** Its four letters as one big-endian number, which compares faster than text: see `chunkType`. */
  type: number;
  data: Buffer;
}

/** The number that stands for four letters in `ImageChunk.type`. */
export function chunkType(letters: string): number {
  return Buffer.from(letters, "latin1").readUInt32BE(0);
}

const PNG_SIGNATURE_BYTES = 8;
const WEBP_HEADER_BYTES = 12;

/** The chunks of a PNG, up to where they are cut off; checksums are not looked at. */
export function* pngChunks(bytes: Buffer): Generator<ImageChunk> {
  let at = PNG_SIGNATURE_BYTES;
  while (at + 12 <= bytes.length) {
    const length = bytes.readUInt32BE(at);
    yield { type: bytes.readUInt32BE(at + 4), data: bytes.subarray(at + 8, at + 8 + length) };
    at += length + 12;
  }
}

/** The outermost chunks of a WebP, up to where they are cut off. */
export function* webpChunks(bytes: Buffer): Generator<ImageChunk> {
  let at = WEBP_HEADER_BYTES;
  while (at + 8 <= bytes.length) {
    const length = bytes.readUInt32LE(at + 4);
    yield { type: bytes.readUInt32BE(at), data: bytes.subarray(at + 8, at + 8 + length) };
    at += 8 + length + (length % 2);
  }
}

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
  // The file ends within its segments, or something that is no segment stands there.
  return at >= bytes.length ? bytes.length : 0;
}

const PNG_END = chunkType("IEND");

function hasPngEnd(bytes: Buffer): boolean {
  for (const { type } of pngChunks(bytes)) if (type === PNG_END) return true;
  return false;
}

/** The cost of decoding an image. */
export interface ImageCost {
  mimeType: ImageMimeType;
  /** The size of one frame. */
  widthPx: number;
  heightPx: number;
  frames: number;
  /** The most that a decoder holds at once, beside the file itself. */
  decodeBytes: number;
}

/** The facts of the markers or chunks behind the header. */
interface Structure {
  frames: number;
  decodeBytes: number;
}

type Size = { widthPx: number; heightPx: number };

const MEASURES: Record<ImageMimeType, (bytes: Buffer, size: Size) => Structure | string> = {
  "image/png": measurePng,
  "image/jpeg": measureJpeg,
  "image/webp": measureWebp,
};

/** Decoders that go row by row keep some hundred rows: those of two tiles and what waits between the steps. */
const ROWS_HELD = 600;

/**
 * The cost of decoding an image, read from its header, markers and chunks alone: nothing is decoded. Returns a text when
 * a limit is exceeded or the header cannot be read: the problem, to be put behind the image's name.
 */
export function measureImage(bytes: Buffer, maxPixels: number): ImageCost | string {
  const mimeType = sniffImageType(bytes);
  if (mimeType === null) return "is not a PNG, JPEG or WebP image";
  const { widthPx, heightPx } = readImageHeader(bytes) ?? { widthPx: null, heightPx: null };
  if (!widthPx || !heightPx) return "has no readable header, so its size is unknown";
  const size = `${widthPx}x${heightPx} pixels`;
  if (widthPx * heightPx > maxPixels) return `has ${size}, more than the ${maxPixels} allowed`;
  const { imageSidePx, imageDecodeBytes } = FIXED_LIMITS;
  if (Math.max(widthPx, heightPx) > imageSidePx) {
    return `has ${size}; at most ${inWords(imageSidePx)} pixels a side are allowed`;
  }
  const measured = MEASURES[mimeType](bytes, { widthPx, heightPx });
  if (typeof measured === "string") return measured;
  const { frames, decodeBytes } = measured;
  if (widthPx * heightPx * frames > maxPixels) {
    return `has ${size} in ${frames} frames, more than the ${maxPixels} allowed`;
  }
  if (decodeBytes > imageDecodeBytes) {
    const [needed, allowed] = [decodeBytes, imageDecodeBytes].map((sum) => Math.ceil(sum / 1e6));
    return `needs ${needed} MB of memory to be decoded, at most ${allowed} MB are allowed: save it smaller, with 8 bits a sample, not interlaced or progressive`;
  }
  return { mimeType, widthPx, heightPx, frames, decodeBytes };
}

function tooMany(things: string, limit: number): string {
  return `has too many ${things}; at most ${inWords(limit)} ${things} are allowed`;
}

function inWords(limit: number): string {
  return limit.toLocaleString("en-US");
}

const [TRNS, IEND] = [chunkType("tRNS"), chunkType("IEND")];
/** By colour type: grey, RGB, palette, grey with alpha, RGB with alpha. */
const PNG_SAMPLES: Record<number, number> = { 0: 1, 2: 3, 3: 3, 4: 2, 6: 4 };

/** Interlaced rows come in seven passes over the whole image, so all of it is held. */
function measurePng(bytes: Buffer, { widthPx, heightPx }: Size): Structure | string {
  const [bits, color, interlaced] = [bytes[24] ?? 0, bytes[25] ?? 0, bytes[28]];
  let transparent = 0;
  const problem = checkChunks(pngChunks(bytes), ({ type }) => {
    if (type === TRNS) transparent = 1;
    return type !== IEND;
  });
  if (problem !== null) return problem;
  const row = widthPx * ((PNG_SAMPLES[color] ?? 4) + transparent) * (bits === 16 ? 2 : 1);
  const rows = interlaced === 0 ? Math.min(heightPx, ROWS_HELD) : heightPx;
  return { frames: 1, decodeBytes: row * rows };
}

/** The memory that the decoder itself takes. */
const WEBP_BYTES = 8_000_000;
const [ANMF, VP8L, ALPH] = [chunkType("ANMF"), chunkType("VP8L"), chunkType("ALPH")];

/**
 * Lossless pixels are held whole, four bytes each, also those of an alpha channel; so is a canvas, together with the frame
 * before and the next. Other pixels are made small as soon as they are decoded.
 */
function measureWebp(bytes: Buffer, { widthPx, heightPx }: Size): Structure | string {
  const { imageFrames } = FIXED_LIMITS;
  let frames = 0;
  let bytesPerPixel = 0;
  const problem = checkChunks(webpChunks(bytes), ({ type }) => {
    if (type === ANMF) frames++;
    else if (type === VP8L) bytesPerPixel = Math.max(bytesPerPixel, 4);
    else if (type === ALPH) bytesPerPixel = 5;
    return frames <= imageFrames;
  });
  if (problem !== null) return problem;
  if (frames > imageFrames) return tooMany("frames", imageFrames);
  if (frames > 0) bytesPerPixel = 12;
  return { frames: Math.max(1, frames), decodeBytes: WEBP_BYTES + widthPx * heightPx * bytesPerPixel };
}

/** Decoders keep a record of each chunk. */
function checkChunks(chunks: Iterable<ImageChunk>, goOn: (chunk: ImageChunk) => boolean): string | null {
  const { imageChunks } = FIXED_LIMITS;
  let count = 0;
  for (const chunk of chunks) {
    if (++count > imageChunks) return tooMany("chunks", imageChunks);
    if (!goOn(chunk)) break;
  }
  return null;
}

/**
 * Walks all markers as a decoder does. With several scans it holds all coefficients, two bytes each; and every scan can
 * take the time of a whole decoding, though it has but a few bytes.
 */
function measureJpeg(bytes: Buffer, { widthPx }: Size): Structure | string {
  const { imageScans, imageChunks } = FIXED_LIMITS;
  let segments = 0;
  let frame = { samples: 3, coefficients: 0, isProgressive: false };
  let scans = 0;
  let isWhole = false;
  for (const { marker, data } of jpegMarkers(bytes)) {
    if (++segments > imageChunks) return tooMany("segments", imageChunks);
    if (scans === 0 && isFrameMarker(marker)) frame = readFrame(marker, data);
    if (marker !== START_OF_SCAN) continue;
    // A decoder takes no second scan when the first one has all.
    if (++scans === 1) isWhole = !frame.isProgressive && data[0] === frame.samples;
    if (isWhole) break;
    if (scans > imageScans) return tooMany("scans", imageScans);
  }
  const rows = widthPx * frame.samples * ROWS_HELD;
  return { frames: 1, decodeBytes: rows + (isWhole ? 0 : frame.coefficients * 2) };
}

const START_OF_SCAN = 0xda;
const END_OF_IMAGE = 0xd9;

/** The markers of a JPEG up to its end, each with what is in its segment. Bytes between segments are passed over. */
function* jpegMarkers(bytes: Buffer): Generator<{ marker: number; data: Buffer }> {
  let at = 2;
  for (;;) {
    while (at < bytes.length && bytes[at] !== 0xff) at++;
    while (bytes[at] === 0xff) at++;
    const marker = bytes[at++];
    if (marker === undefined || marker === END_OF_IMAGE) return;
    // A zero behind 0xff makes it a byte of the data.
    if (marker === 0 || isBareMarker(marker)) continue;
    if (at + 2 > bytes.length) return;
    const length = Math.max(2, bytes.readUInt16BE(at));
    yield { marker, data: bytes.subarray(at + 2, at + length) };
    at += length;
  }
}

const [SOF2, SOF10] = [0xc2, 0xca];

/** Coefficients of all components, each padded to whole blocks of 8x8 and by its share of the pixels. */
function readFrame(marker: number, data: Buffer) {
  const [heightPx, widthPx, samples] = [uint16(data, 1), uint16(data, 3), data[5] ?? 0];
  const factors = Array.from({ length: samples }, (_, i) => data[7 + i * 3] ?? 0x11);
  const widest = Math.max(1, ...factors.map((factor) => factor >> 4));
  const highest = Math.max(1, ...factors.map((factor) => factor & 15));
  const blocks = (sidePx: number, factor: number, most: number) =>
    Math.ceil(sidePx / (8 * most)) * Math.max(1, factor);
  const coefficients = factors.reduce(
    (sum, factor) => sum + blocks(widthPx, factor >> 4, widest) * blocks(heightPx, factor & 15, highest) * 64,
    0,
  );
  return { samples, coefficients, isProgressive: marker === SOF2 || marker === SOF10 };
}

function uint16(data: Buffer, at: number): number {
  return ((data[at] ?? 0) << 8) | (data[at + 1] ?? 0);
}
