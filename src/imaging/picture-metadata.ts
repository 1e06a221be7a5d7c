import { crc32 } from "node:zlib";
import type { ImageMimeType, SizePx } from "../contract/image-formats.ts";

/** The facts about the making of a picture that are written into its file. */
export interface PictureMetadata {
  /** The program that made it, and what kind of picture that is. */
  software: string;
  prompt: string;
  /** The names and values of the settings line, in this order. A null is left out. */
  settings: Readonly<Record<string, string | number | null>>;
  /** Goes as JSON into the program's own chunk; PNG only. */
  details: Record<string, unknown>;
}

/**
 * Writes the metadata into an encoded picture: text chunks of a PNG, EXIF of JPEG and WebP. The settings are in the
 * form that image viewers and prompt readers know: the prompt, then one line of `Name: value` pairs.
 */
export function addMetadata(
  image: Buffer,
  mimeType: ImageMimeType,
  size: SizePx,
  metadata: PictureMetadata,
): Buffer {
  if (mimeType === "image/png") {
    return addPngText(image, [
      ["parameters", parametersText(metadata)],
      ["Software", metadata.software],
      ["imgbatch", JSON.stringify(metadata.details)],
    ]);
  }
  const exif = exifBlock({
    software: metadata.software,
    description: beginning(metadata.prompt, MAX_DESCRIPTION),
    comment: parametersText({ ...metadata, prompt: beginning(metadata.prompt, MAX_COMMENT) }),
  });
  return mimeType === "image/jpeg" ? addExifToJpeg(image, exif) : addExifToWebp(image, exif, size);
}

/** A JPEG takes 64 KiB of EXIF. A prompt of this many UTF-16 units always leaves space for the rest. */
const MAX_COMMENT = 16_000;
const MAX_DESCRIPTION = 2000;

function beginning(text: string, units: number): string {
  if (text.length <= units) return text;
  return `${text.slice(0, units - 1).replace(/[\ud800-\udbff]$/, "")}…`;
}

function parametersText({ prompt, settings }: Pick<PictureMetadata, "prompt" | "settings">): string {
  const pairs = Object.entries(settings).flatMap(([name, value]) =>
    value === null ? [] : [`${name}: ${String(value).replaceAll(/[,\s]+/g, " ")}`],
  );
  return `${prompt}\n${pairs.join(", ")}`;
}

/** A keyword (1 to 79 Latin-1 characters) and its text. */
type PngText = readonly [keyword: string, text: string];

const SIGNATURE_AND_HEADER_BYTES = 8 + 25;

/**
 * Puts text chunks into a PNG, right behind its header, where readers that do not scan the whole file look.
 * Text within Latin-1 becomes `tEXt`, anything else `iTXt` (UTF-8, uncompressed).
 */
function addPngText(png: Buffer, texts: readonly PngText[]): Buffer {
  const chunks = texts.map(([keyword, text]) =>
    isLatin1(text) ? plain(keyword, text) : international(keyword, text),
  );
  return Buffer.concat([
    png.subarray(0, SIGNATURE_AND_HEADER_BYTES),
    ...chunks,
    png.subarray(SIGNATURE_AND_HEADER_BYTES),
  ]);
}

function isLatin1(text: string): boolean {
  return /^[\n\x20-\x7e\xa0-\xff]*$/.test(text);
}

function plain(keyword: string, text: string): Buffer {
  return chunk("tEXt", Buffer.from(`${keyword}\0${text}`, "latin1"));
}

function international(keyword: string, text: string): Buffer {
  // Keyword, NUL, "not compressed", method 0, empty language tag, empty translated keyword.
  return chunk(
    "iTXt",
    Buffer.concat([
      Buffer.from(`${keyword}\0\0\0\0\0`, "latin1"),
      Buffer.from(text.replaceAll("\0", ""), "utf8"),
    ]),
  );
}

function chunk(type: string, data: Buffer): Buffer {
  const out = Buffer.alloc(data.length + 12);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, "latin1");
  data.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length);
  return out;
}

/** The texts of an EXIF block that describe how a picture was made. */
interface ExifTexts {
  software: string;
  /** IFD0 ImageDescription. */
  description: string;
  /** UserComment, written as UNICODE. */
  comment: string;
}

const ASCII = 2;
const LONG = 4;
const UNDEFINED = 7;
const HEADER_BYTES = 8;

interface Entry {
  tag: number;
  type: number;
  data: Buffer;
}

/**
 * A big-endian TIFF block as EXIF holds it, without the "Exif" prefix of JPEG. Written here because libvips writes
 * a UserComment as ASCII only and so loses every other letter.
 */
function exifBlock(texts: ExifTexts): Buffer {
  const main: Entry[] = [
    { tag: 0x010e, type: ASCII, data: terminated(texts.description) },
    { tag: 0x0131, type: ASCII, data: terminated(texts.software) },
    { tag: 0x8769, type: LONG, data: Buffer.alloc(4) },
  ];
  const inner: Entry[] = [
    { tag: 0x9000, type: UNDEFINED, data: Buffer.from("0232", "latin1") },
    { tag: 0x9286, type: UNDEFINED, data: unicodeComment(texts.comment) },
  ];
  const innerOffset = HEADER_BYTES + directoryBytes(main);
  main[2]?.data.writeUInt32BE(innerOffset);
  return Buffer.concat([
    Buffer.from("MM\0*\0\0\0\x08", "latin1"),
    directory(main, HEADER_BYTES),
    directory(inner, innerOffset),
  ]);
}

function terminated(text: string): Buffer {
  return Buffer.from(`${text.replaceAll("\0", "")}\0`, "utf8");
}

function unicodeComment(text: string): Buffer {
  return Buffer.concat([Buffer.from("UNICODE\0", "latin1"), Buffer.from(text, "utf16le").swap16()]);
}

function directoryBytes(entries: readonly Entry[]): number {
  return (
    tableBytes(entries) +
    entries.reduce((sum, { data }) => sum + (data.length > 4 ? even(data.length) : 0), 0)
  );
}

function tableBytes(entries: readonly Entry[]): number {
  return 2 + entries.length * 12 + 4;
}

function even(length: number): number {
  return length + (length % 2);
}

function directory(entries: readonly Entry[], offset: number): Buffer {
  const out = Buffer.alloc(directoryBytes(entries));
  out.writeUInt16BE(entries.length, 0);
  let heap = tableBytes(entries);
  entries.forEach(({ tag, type, data }, index) => {
    const at = 2 + index * 12;
    out.writeUInt16BE(tag, at);
    out.writeUInt16BE(type, at + 2);
    out.writeUInt32BE(type === LONG ? data.length / 4 : data.length, at + 4);
    if (data.length <= 4) {
      data.copy(out, at + 8);
    } else {
      out.writeUInt32BE(offset + heap, at + 8);
      data.copy(out, heap);
      heap += even(data.length);
    }
  });
  return out;
}

const APP1_MAX_BYTES = 0xffff;
const PREFIX = Buffer.from("Exif\0\0", "latin1");

/** Puts an EXIF block into a JPEG, right behind its first marker. Throws a RangeError above 64 KiB. */
function addExifToJpeg(jpeg: Buffer, exif: Buffer): Buffer {
  const length = 2 + PREFIX.length + exif.length;
  if (length > APP1_MAX_BYTES)
    throw new RangeError(`an EXIF block of ${exif.length} bytes does not fit a JPEG`);
  const marker = Buffer.from([0xff, 0xe1, length >> 8, length & 0xff]);
  return Buffer.concat([jpeg.subarray(0, 2), marker, PREFIX, exif, jpeg.subarray(2)]);
}

const EXIF_FLAG = 0x08;
const ALPHA_FLAG = 0x10;

/**
 * Puts an EXIF block into a still WebP file. Its size is given because the simple file form does not need an
 * extended header, and one must be written to announce the block.
 */
function addExifToWebp(webp: Buffer, exif: Buffer, size: { widthPx: number; heightPx: number }): Buffer {
  const chunks = webpChunks(webp).filter(({ type }) => type !== "EXIF");
  const extended = chunks.find(({ type }) => type === "VP8X");
  const header = extended === undefined ? extendedHeader(chunks, size) : Buffer.from(extended.data);
  header.writeUInt8(header.readUInt8(0) | EXIF_FLAG, 0);
  const body = Buffer.concat([
    Buffer.from("WEBP", "latin1"),
    riffChunk("VP8X", header),
    ...chunks.filter((chunk) => chunk !== extended).map(({ type, data }) => riffChunk(type, data)),
    riffChunk("EXIF", exif),
  ]);
  return riffChunk("RIFF", body);
}

interface RiffChunk {
  type: string;
  data: Buffer;
}

function webpChunks(webp: Buffer): RiffChunk[] {
  const chunks: RiffChunk[] = [];
  let at = 12;
  while (at + 8 <= webp.length) {
    const length = webp.readUInt32LE(at + 4);
    chunks.push({
      type: webp.toString("latin1", at, at + 4),
      data: webp.subarray(at + 8, at + 8 + length),
    });
    at += 8 + length + (length % 2);
  }
  return chunks;
}

function extendedHeader(chunks: readonly RiffChunk[], size: { widthPx: number; heightPx: number }): Buffer {
  const header = Buffer.alloc(10);
  // A lossless stream says in one bit whether it has alpha.
  const lossless = chunks.find(({ type }) => type === "VP8L");
  if (lossless !== undefined && ((lossless.data[4] ?? 0) & ALPHA_FLAG) !== 0)
    header.writeUInt8(ALPHA_FLAG, 0);
  header.writeUIntLE(size.widthPx - 1, 4, 3);
  header.writeUIntLE(size.heightPx - 1, 7, 3);
  return header;
}

function riffChunk(type: string, data: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.write(type, 0, "latin1");
  head.writeUInt32LE(data.length, 4);
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)]);
}
