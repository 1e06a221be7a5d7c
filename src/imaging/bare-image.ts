import { chunkType, type ImageChunk, pngChunks, webpChunks } from "../contract/images/image-chunks.ts";
import { isBareMarker } from "../contract/images/image-header.ts";
import type { ImageMimeType } from "../contract/images/image-types.ts";

/** The chunks of pixels, colours and animation in a PNG (third edition, 5.6), in front of the last one. */
const PNG_PICTURE = chunkTypes(
  "IHDR PLTE IDAT tRNS cHRM gAMA iCCP sBIT sRGB cICP mDCV cLLI bKGD hIST pHYs sPLT tIME acTL fcTL fdAT",
);
const PNG_END = chunkType("IEND");
const WEBP_PICTURE = chunkTypes("VP8  VP8L VP8X ALPH ANIM ANMF ICCP");

/**
 * Whether a file holds a picture and nothing about it: no text, no EXIF, no signature of its origin, no part that is
 * unknown here. Only into such a file can metadata be put without a change to anything that its maker wrote about it.
 * False for a file that is damaged or goes on behind its end.
 */
export function isBareImage(image: Buffer, mimeType: ImageMimeType): boolean {
  if (mimeType === "image/jpeg") return isBareJpeg(image);
  if (mimeType === "image/png") {
    const chunks = [...pngChunks(image)];
    const [last] = chunks.splice(-1);
    return last?.type === PNG_END && endsWith(image, last, 4) && holdsOnly(chunks, PNG_PICTURE);
  }
  if (image.length < 12 || image.readUInt32LE(4) + 8 !== image.length) return false;
  const chunks = [...webpChunks(image)];
  const [last] = chunks.slice(-1);
  return last !== undefined && endsWith(image, last, last.data.length % 2) && holdsOnly(chunks, WEBP_PICTURE);
}

function chunkTypes(letters: string): ReadonlySet<number> {
  return new Set((letters.match(/.{4} ?/g) ?? []).map((each) => chunkType(each.slice(0, 4))));
}

function holdsOnly(chunks: readonly ImageChunk[], types: ReadonlySet<number>): boolean {
  return chunks.length > 0 && chunks.every(({ type }) => types.has(type));
}

/** Whether a chunk and so many bytes behind it end the file. */
function endsWith(image: Buffer, { data }: ImageChunk, behind: number): boolean {
  return data.byteOffset - image.byteOffset + data.length + behind === image.length;
}

const [SCAN, COMMENT] = [0xda, 0xfe];
/** The application segments of a picture: JFIF, colour profile, Adobe's colour transform. Others hold metadata. */
const JPEG_PICTURE: Record<number, string> = { 224: "JFIF\0", 226: "ICC_PROFILE\0", 238: "Adobe" };

/** Looks at all segments up to the first scan. */
function isBareJpeg(image: Buffer): boolean {
  for (let at = 2; at + 4 <= image.length && image[at] === 0xff; ) {
    const marker = image[at + 1] ?? 0;
    if (marker === SCAN) return image.subarray(-2).equals(Buffer.from([0xff, 0xd9]));
    if (marker === 0xff || isBareMarker(marker)) return false;
    const isApplication = marker >= 0xe0 && marker <= 0xef;
    const name = JPEG_PICTURE[marker];
    const isPicture = name !== undefined && image.toString("latin1", at + 4, at + 4 + name.length) === name;
    if (marker === COMMENT || (isApplication && !isPicture)) return false;
    at += 2 + image.readUInt16BE(at + 2);
  }
  return false;
}
