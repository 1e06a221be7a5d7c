import { crc32 } from "node:zlib";
import type { DigitalSource, ImageMimeType, SizePx } from "../contract/image-formats.ts";
import { chunkType, pngChunks, webpChunks } from "../contract/image-structure.ts";

/** The facts about the making of a picture that are written into its file. */
interface PictureMetadata {
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
  return mimeType === "image/jpeg"
    ? addExifToJpeg(image, exif)
    : addToWebp(image, { type: EXIF, data: exif, flag: EXIF_FLAG }, size);
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

const SIGNATURE_AND_HEADER_BYTES = 8 + 25;

/**
 * Puts texts by keyword (1 to 79 Latin-1 characters) into a PNG, right behind its header, where readers that do not scan
 * the whole file look. Text within Latin-1 becomes `tEXt`, anything else `iTXt` (UTF-8, uncompressed).
 */
function addPngText(png: Buffer, texts: readonly (readonly [keyword: string, text: string])[]): Buffer {
  const chunks = texts.map(([keyword, text]) => {
    const isLatin1 = /^[\n\x20-\x7e\xa0-\xff]*$/.test(text);
    if (isLatin1) return pngChunk("tEXt", Buffer.from(`${keyword}\0${text}`, "latin1"));
    // Keyword, NUL, "not compressed", method 0, empty language tag, empty translated keyword.
    return pngChunk("iTXt", Buffer.from(`${keyword}\0\0\0\0\0${text.replaceAll("\0", "")}`));
  });
  const [head, rest] = [
    png.subarray(0, SIGNATURE_AND_HEADER_BYTES),
    png.subarray(SIGNATURE_AND_HEADER_BYTES),
  ];
  return Buffer.concat([head, ...chunks, rest]);
}

function pngChunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  return Buffer.concat([uint32(data.length), body, uint32(crc32(body))]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The texts of an EXIF block that describe how a picture was made. */
interface ExifTexts {
  software: string;
  /** IFD0 ImageDescription. */
  description: string;
  /** UserComment, written as UNICODE. */
  comment: string;
}

const [ASCII, LONG, UNDEFINED] = [2, 4, 7];
/** Big-endian, and the first directory follows. */
const TIFF_HEADER = Buffer.from("MM\0*\0\0\0\x08", "latin1");

/**
 * A big-endian TIFF block as EXIF holds it, without the "Exif" prefix of JPEG. Written here because libvips writes
 * a UserComment as ASCII only and so loses every other letter.
 */
function exifBlock({ software, description, comment }: ExifTexts): Buffer {
  const terminated = (text: string) => Buffer.from(`${text.replaceAll("\0", "")}\0`);
  const main = (innerAt: number) =>
    exifDirectory(TIFF_HEADER.length, [
      [0x010e, ASCII, terminated(description)],
      [0x0131, ASCII, terminated(software)],
      [0x8769, LONG, uint32(innerAt)],
    ]);
  const unicode = Buffer.concat([
    Buffer.from("UNICODE\0", "latin1"),
    Buffer.from(comment, "utf16le").swap16(),
  ]);
  const innerAt = TIFF_HEADER.length + main(0).length;
  const inner = exifDirectory(innerAt, [
    [0x9000, UNDEFINED, Buffer.from("0232", "latin1")],
    [0x9286, UNDEFINED, unicode],
  ]);
  return Buffer.concat([TIFF_HEADER, main(innerAt), inner]);
}

type ExifEntry = readonly [tag: number, type: number, data: Buffer];

/** A directory that begins at an offset of the block, with the values that do not fit into it behind it. */
function exifDirectory(offset: number, entries: readonly ExifEntry[]): Buffer {
  const table = Buffer.alloc(2 + entries.length * 12 + 4);
  const parts = [table];
  let end = offset + table.length;
  table.writeUInt16BE(entries.length, 0);
  for (const [index, [tag, type, data]] of entries.entries()) {
    const at = 2 + index * 12;
    table.writeUInt16BE(tag, at);
    table.writeUInt16BE(type, at + 2);
    table.writeUInt32BE(type === LONG ? data.length / 4 : data.length, at + 4);
    if (data.length <= 4) data.copy(table, at + 8);
    else {
      table.writeUInt32BE(end, at + 8);
      const even = Buffer.alloc(data.length + (data.length % 2));
      data.copy(even);
      parts.push(even);
      end += even.length;
    }
  }
  return Buffer.concat(parts);
}

/**
 * Returns the XMP of a picture that a program has made: its kind, in the IPTC's vocabulary, and the name of this program. It is
 * the same for all pictures of a kind.
 */
export function xmpOf(source: DigitalSource): string {
  return `<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
    xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
    xmlns:xmp="http://ns.adobe.com/xap/1.0/">
   <Iptc4xmpExt:DigitalSourceType>http://cv.iptc.org/newscodes/digitalsourcetype/${source}</Iptc4xmpExt:DigitalSourceType>
   <xmp:CreatorTool>imgbatch</xmp:CreatorTool>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="r"?>`;
}

/**
 * Puts XMP into an encoded picture in the place of its own, and leaves its pixels as they are. Content credentials (C2PA) are left
 * out: they hold for the bytes of the original alone.
 */
export function addXmp(image: Buffer, mimeType: ImageMimeType, size: SizePx, xmp: string): Buffer {
  const packet = Buffer.from(xmp);
  switch (mimeType) {
    case "image/png":
      return addXmpToPng(image, packet);
    case "image/jpeg":
      return addXmpToJpeg(image, packet);
    case "image/webp":
      return addToWebp(image, { type: XMP, data: packet, flag: XMP_FLAG }, size);
  }
}

/** Whether an encoded picture has content credentials (C2PA). */
export function hasCredentials(image: Buffer, mimeType: ImageMimeType): boolean {
  if (mimeType === "image/jpeg") return jpegSegments(image).some(isCredential);
  const chunks = mimeType === "image/png" ? pngChunks(image) : webpChunks(image);
  return [...chunks].some(({ type }) => type === CABX || type === C2PA);
}

const [CABX, C2PA, ITXT, IEND] = [chunkType("caBX"), chunkType("C2PA"), chunkType("iTXt"), chunkType("IEND")];
const XMP_KEYWORD = Buffer.from("XML:com.adobe.xmp\0", "latin1");

function addXmpToPng(png: Buffer, packet: Buffer): Buffer {
  // Keyword and NUL, "not compressed", method 0, empty language tag, empty translated keyword.
  const chunk = pngChunk("iTXt", Buffer.concat([XMP_KEYWORD, Buffer.alloc(4), packet]));
  const parts = [png.subarray(0, SIGNATURE_AND_HEADER_BYTES), chunk];
  let from = SIGNATURE_AND_HEADER_BYTES;
  for (const { type, data } of pngChunks(png)) {
    const isXmp = type === ITXT && data.subarray(0, XMP_KEYWORD.length).equals(XMP_KEYWORD);
    const at = data.byteOffset - png.byteOffset;
    if (type === IEND) break;
    if (!isXmp && type !== CABX) continue;
    parts.push(png.subarray(from, at - 8));
    from = at + data.length + 4;
  }
  return Buffer.concat([...parts, png.subarray(from)]);
}

interface JpegSegment {
  marker: number;
  from: number;
  end: number;
  data: Buffer;
}

/** The segments of a JPEG in front of its first scan. */
function jpegSegments(jpeg: Buffer): JpegSegment[] {
  const segments: JpegSegment[] = [];
  let at = 2;
  while (at + 4 <= jpeg.length && jpeg[at] === 0xff) {
    const marker = jpeg[at + 1] ?? 0;
    if (marker === 0xda) break;
    const end = marker === 0xff ? at + 1 : at + 2 + jpeg.readUInt16BE(at + 2);
    segments.push({ marker, from: at, end, data: jpeg.subarray(at + 4, end) });
    at = end;
  }
  return segments;
}

const [APP0, APP1, APP11] = [0xe0, 0xe1, 0xeb];
const XMP_PREFIX = Buffer.from("http://ns.adobe.com/xap/1.0/\0", "latin1");

const isCredential = ({ marker, data }: JpegSegment) => marker === APP11 && data.includes("jumb");

function addXmpToJpeg(jpeg: Buffer, packet: Buffer): Buffer {
  const segments = jpegSegments(jpeg);
  const isXmp = ({ marker, data }: JpegSegment) =>
    marker === APP1 && data.subarray(0, XMP_PREFIX.length).equals(XMP_PREFIX);
  const kept = segments.filter((segment) => !isXmp(segment) && !isCredential(segment));
  const bytes = ({ from, end }: JpegSegment) => jpeg.subarray(from, end);
  const first = kept.filter(({ marker }) => marker === APP0).map(bytes);
  const others = kept.filter(({ marker }) => marker !== APP0).map(bytes);
  const own = jpegSegment(APP1, Buffer.concat([XMP_PREFIX, packet]));
  const rest = jpeg.subarray(segments.at(-1)?.end ?? 2);
  return Buffer.concat([jpeg.subarray(0, 2), ...first, own, ...others, rest]);
}

function jpegSegment(marker: number, data: Buffer): Buffer {
  const length = data.length + 2;
  return Buffer.concat([Buffer.from([0xff, marker, length >> 8, length & 0xff]), data]);
}

const APP1_MAX_BYTES = 0xffff;
const PREFIX = Buffer.from("Exif\0\0", "latin1");

/** Puts an EXIF block into a JPEG, right behind its first marker. Throws a RangeError above 64 KiB. */
function addExifToJpeg(jpeg: Buffer, exif: Buffer): Buffer {
  const length = 2 + PREFIX.length + exif.length;
  if (length > APP1_MAX_BYTES)
    throw new RangeError(`an EXIF block of ${exif.length} bytes does not fit a JPEG`);
  const segment = jpegSegment(APP1, Buffer.concat([PREFIX, exif]));
  return Buffer.concat([jpeg.subarray(0, 2), segment, jpeg.subarray(2)]);
}

const EXIF_FLAG = 0x08;
const XMP_FLAG = 0x04;
const ALPHA_FLAG = 0x10;
const [VP8X, VP8L, EXIF, XMP] = [chunkType("VP8X"), chunkType("VP8L"), chunkType("EXIF"), chunkType("XMP ")];

/**
 * Puts a block of metadata into a still WebP file, in the place of its own. The size of the picture is given because the simple
 * form of the file has no extended header, and that must be written to announce the block.
 */
function addToWebp(webp: Buffer, block: { type: number; data: Buffer; flag: number }, size: SizePx): Buffer {
  const chunks = Array.from(webpChunks(webp)).filter(({ type }) => type !== block.type && type !== C2PA);
  const dataOf = (wanted: number) => chunks.find(({ type }) => type === wanted)?.data;
  const header = Buffer.from(dataOf(VP8X) ?? extendedHeader(dataOf(VP8L), size));
  header.writeUInt8(header.readUInt8(0) | block.flag, 0);
  const others = chunks.filter(({ type }) => type !== VP8X).map(({ type, data }) => riffChunk(type, data));
  const body = [Buffer.from("WEBP"), riffChunk(VP8X, header), ...others, riffChunk(block.type, block.data)];
  return riffChunk(chunkType("RIFF"), Buffer.concat(body));
}

/** A lossless stream says in one bit whether it has alpha. */
function extendedHeader(lossless: Buffer | undefined, { widthPx, heightPx }: SizePx): Buffer {
  const header = Buffer.alloc(10);
  header.writeUInt8((lossless?.[4] ?? 0) & ALPHA_FLAG, 0);
  header.writeUIntLE(widthPx - 1, 4, 3);
  header.writeUIntLE(heightPx - 1, 7, 3);
  return header;
}

function riffChunk(type: number, data: Buffer): Buffer {
  const length = uint32(data.length).swap32();
  return Buffer.concat([uint32(type), length, data, Buffer.alloc(data.length % 2)]);
}
