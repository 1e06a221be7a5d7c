import { crc32 } from "node:zlib";

/** A keyword (1 to 79 Latin-1 characters) and its text. */
export type PngText = readonly [keyword: string, text: string];

const SIGNATURE_AND_HEADER_BYTES = 8 + 25;

/**
 * Puts text chunks into a PNG, right behind its header, where readers that do not scan the whole file look.
 * Text within Latin-1 becomes `tEXt`, anything else `iTXt` (UTF-8, uncompressed).
 */
export function addPngText(png: Buffer, texts: readonly PngText[]): Buffer {
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
