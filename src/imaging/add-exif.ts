const APP1_MAX_BYTES = 0xffff;
const PREFIX = Buffer.from("Exif\0\0", "latin1");

/** Puts an EXIF block into a JPEG, right behind its first marker. Throws a RangeError above 64 KiB. */
export function addExifToJpeg(jpeg: Buffer, exif: Buffer): Buffer {
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
export function addExifToWebp(
  webp: Buffer,
  exif: Buffer,
  size: { widthPx: number; heightPx: number },
): Buffer {
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
