import { createInflate, constants as zlib } from "node:zlib";
import { chunkType, pngChunks } from "../contract/images/image-chunks.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";

/** Profiles of printers have about 2 MiB; prompts and edit histories less. */
const MAX_UNPACKED_BYTES = 16 * 1024 * 1024;
const MAX_PACKED_CHUNKS = 100;
const PIECE_BYTES = 256 * 1024;

const [ICCP, ZTXT, ITXT] = [chunkType("iCCP"), chunkType("zTXt"), chunkType("iTXt")];

/**
 * Unpacks the texts and colour profiles of a PNG, off the main thread and never more than a piece at a time, and throws
 * `InvalidImageError` when they are too large: a decoder unpacks all of them, each up to a limit of its own.
 * The form of the chunks is that of the PNG specification, 11.3.2.3 and 11.3.3.
 */
export async function checkPackedChunks(png: Buffer): Promise<void> {
  let count = 0;
  let room = MAX_UNPACKED_BYTES;
  for (const { type, data } of pngChunks(png)) {
    const packed = packedPart(type, data);
    if (packed === null) continue;
    if (++count <= MAX_PACKED_CHUNKS) room -= await unpackedBytes(packed, room);
    if (count > MAX_PACKED_CHUNKS || room < 0) {
      throw new InvalidImageError(
        `the PNG image has too many packed texts and profiles; at most ${MAX_PACKED_CHUNKS} of together 16 MiB are allowed`,
      );
    }
  }
}

/** Behind the keyword, its NUL and the method; an iTXt has a flag before the method, and two more texts behind it. */
function packedPart(type: number, data: Buffer): Buffer | null {
  if (type !== ICCP && type !== ZTXT && type !== ITXT) return null;
  const keywordEnd = data.indexOf(0);
  if (keywordEnd === -1) return null;
  if (type !== ITXT) return data.subarray(keywordEnd + 2);
  if (data[keywordEnd + 1] !== 1) return null;
  const languageEnd = data.indexOf(0, keywordEnd + 3);
  const translationEnd = languageEnd === -1 ? -1 : data.indexOf(0, languageEnd + 1);
  return translationEnd === -1 ? null : data.subarray(translationEnd + 1);
}

/** Counted up to a piece beyond `limit`; a damaged stream counts up to its damage. */
async function unpackedBytes(packed: Buffer, limit: number): Promise<number> {
  const unpacking = createInflate({ chunkSize: PIECE_BYTES, finishFlush: zlib.Z_SYNC_FLUSH });
  unpacking.end(packed);
  let bytes = 0;
  try {
    for await (const piece of unpacking) {
      bytes += piece.length;
      if (bytes > limit) break;
    }
  } catch {
    // The image decoder has its own opinion of damage.
  }
  return bytes;
}
