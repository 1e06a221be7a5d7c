/** A part of a PNG or WebP file. */
export interface ImageChunk {
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
