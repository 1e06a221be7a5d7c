import { chunkType, type ImageCost, webpChunks } from "../contract/image-structure.ts";
import { InvalidImageError } from "../domain/ports/image-inspector.ts";
import { createYield } from "../kernel/yield.ts";
import { countCodeGroups } from "./code-groups.ts";

/** libwebp writes at most 2600. A decoder keeps up to 20 kB for each, and a stream could have 65,536. */
const MAX_CODE_GROUPS = 4096;

const [ANMF, VP8L, ALPH] = [chunkType("ANMF"), chunkType("VP8L"), chunkType("ALPH")];
/** In front of the chunks of a file, and in front of those of a frame. */
const [FILE_HEADER_BYTES, FRAME_HEADER_BYTES] = [12, 16];
const PICTURE_HEADER_BYTES = 5;
/** A small frame takes 50 µs. */
const FRAMES_BETWEEN_PAUSES = 16;

type Size = Pick<ImageCost, "widthPx" | "heightPx">;

/**
 * Throws `InvalidImageError` when a lossless picture or alpha channel of a WebP has so many groups of prefix codes that
 * its decoder would take hundreds of megabytes for them; no header shows their number. Also throws it for damage before
 * the pixels. `canvas` is the size in the header of the file.
 */
export async function checkCodeGroups(webp: Buffer, canvas: Size): Promise<void> {
  const yieldSometimes = createYield(FRAMES_BETWEEN_PAUSES);
  await checkPicture(webp, canvas);
  for (const { type, data } of webpChunks(webp)) {
    if (type !== ANMF) continue;
    if (data.length < FRAME_HEADER_BYTES) throw damaged();
    const size = { widthPx: data.readUIntLE(6, 3) + 1, heightPx: data.readUIntLE(9, 3) + 1 };
    if (isBeyond(size, canvas)) throw damaged();
    await checkPicture(data.subarray(FRAME_HEADER_BYTES - FILE_HEADER_BYTES), size);
    await yieldSometimes();
  }
}

async function checkPicture(chunks: Buffer, size: Size): Promise<void> {
  const seen = new Set<number>();
  for (const { type, data } of webpChunks(chunks)) {
    if (type !== VP8L && type !== ALPH) continue;
    // Each takes time, and no picture has two.
    if (seen.has(type)) throw damaged();
    seen.add(type);
    const groups = type === VP8L ? await groupsOfPicture(data, size) : await groupsOfAlpha(data, size);
    if (groups === null) throw damaged();
    if (groups <= MAX_CODE_GROUPS) continue;
    throw new InvalidImageError(
      `the WebP image has ${groups} groups of prefix codes; at most ${MAX_CODE_GROUPS} are allowed`,
    );
  }
}

/** Behind a signature come 14 bits each for width and height, a flag of alpha and three bits of version. */
async function groupsOfPicture(data: Buffer, limit: Size): Promise<number | null> {
  if (data.length < PICTURE_HEADER_BYTES) return null;
  const header = data.readUInt32LE(1);
  const size = { widthPx: (header & 0x3fff) + 1, heightPx: ((header >>> 14) & 0x3fff) + 1 };
  return isBeyond(size, limit) ? null : countCodeGroups(data.subarray(PICTURE_HEADER_BYTES), size);
}

/** The first two bits say whether the samples are packed; a packed channel has no header of its own. */
async function groupsOfAlpha(data: Buffer, size: Size): Promise<number | null> {
  return ((data[0] ?? 0) & 3) === 1 ? countCodeGroups(data.subarray(1), size) : 0;
}

function isBeyond(size: Size, limit: Size): boolean {
  return size.widthPx > limit.widthPx || size.heightPx > limit.heightPx;
}

function damaged(): InvalidImageError {
  return new InvalidImageError("the WebP image does not decode: its lossless data is damaged");
}
