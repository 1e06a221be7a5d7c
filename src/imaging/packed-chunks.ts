import { createInflate, constants as zlib } from "node:zlib";
import { chunkType, pngChunks } from "../contract/image-structure.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";

/** Profiles of printers have about 2 MiB. */
const MAX_PROFILE_BYTES = 4 * 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
/** In front of a chunk's data, and behind it. */
const [HEAD_BYTES, CHECKSUM_BYTES] = [8, 4];

const [ICCP, IEND] = [chunkType("iCCP"), chunkType("IEND")];
const TEXTS = new Set(["tEXt", "zTXt", "iTXt"].map(chunkType));

/**
 * Returns a PNG for a decoder: without its texts, which a decoder would unpack for nothing, and with one colour profile at
 * most. Throws `InvalidImageError` when that profile unpacks to more than 4 MiB. The form of the chunks is that of the
 * PNG specification, 11.3.2.3 and 11.3.3.
 */
export async function withoutTexts(png: Buffer): Promise<Buffer> {
  const kept: Buffer[] = [];
  let from = 0;
  let profile: Buffer | null = null;
  for (const { type, data } of pngChunks(png)) {
    if (type === IEND) break;
    if (type === ICCP && profile === null) profile = data;
    else if (type === ICCP || TEXTS.has(type)) {
      const at = data.byteOffset - png.byteOffset;
      if (at - HEAD_BYTES > from) kept.push(png.subarray(from, at - HEAD_BYTES));
      from = at + data.length + CHECKSUM_BYTES;
    }
  }
  if (profile !== null && (await isProfileTooLarge(profile))) {
    throw new InvalidImageError(
      "the PNG image has a colour profile of more than 4 MiB; save it with a smaller one",
    );
  }
  return from === 0 ? png : Buffer.concat([...kept, png.subarray(from)]);
}

/** Unpacks a piece at a time, off the main thread; a damaged profile counts up to its damage. */
async function isProfileTooLarge(data: Buffer): Promise<boolean> {
  const unpacking = createInflate({ chunkSize: PIECE_BYTES, finishFlush: zlib.Z_SYNC_FLUSH });
  // Behind the name, its NUL and the method.
  unpacking.end(data.subarray(data.indexOf(0) + 2));
  let bytes = 0;
  try {
    for await (const piece of unpacking) {
      bytes += piece.length;
      if (bytes > MAX_PROFILE_BYTES) return true;
    }
  } catch {
    // The image decoder has its own opinion of damage.
  }
  return false;
}
