import { crc32 } from "node:zlib";
import type { ImageMimeType } from "../../src/contract/image-formats.ts";
import { seededRandom } from "../soak/random.ts";

type Mutation = (bytes: Buffer, random: () => number, mimeType: ImageMimeType) => Buffer;

const below = (random: () => number, limit: number) => Math.floor(random() * limit);
const EXTREMES = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff];

/** Damage of files on bad disks and lines, and by somebody who knows the format. */
const MUTATIONS: Record<string, Mutation> = {
  bitFlips: (bytes, random) => {
    const out = Buffer.from(bytes);
    for (let n = 1 + below(random, 8); n > 0; n--) {
      const at = below(random, out.length);
      out[at] = (out[at] ?? 0) ^ (1 << below(random, 8));
    }
    return out;
  },
  truncation: (bytes, random) => bytes.subarray(0, below(random, bytes.length)),
  missingMiddle: (bytes, random) => {
    const start = below(random, bytes.length);
    return Buffer.concat([bytes.subarray(0, start), bytes.subarray(start + 1 + below(random, 300))]);
  },
  swappedParts: (bytes, random, mimeType) => {
    const parts = partsOf(bytes, mimeType);
    const [a, b] = [1 + below(random, parts.length - 1), 1 + below(random, parts.length - 1)];
    [parts[a], parts[b]] = [parts[b] as Buffer, parts[a] as Buffer];
    return Buffer.concat(parts);
  },
  lengthField: (bytes, random, mimeType) => {
    const parts = partsOf(bytes, mimeType).map((part) => Buffer.from(part));
    const part = parts[1 + below(random, parts.length - 1)];
    const value = EXTREMES[below(random, EXTREMES.length)] ?? 0;
    if (part && mimeType === "image/png" && part.length >= 4) part.writeUInt32BE(value, 0);
    if (part && mimeType === "image/webp" && part.length >= 8) part.writeUInt32LE(value, 4);
    if (part && mimeType === "image/jpeg" && part.length >= 4) part.writeUInt16BE(value & 0xffff, 2);
    return Buffer.concat(parts);
  },
  /** The sum of a changed PNG chunk is made right again, so that decoders look behind it. */
  changedInside: (bytes, random, mimeType) => {
    const parts = partsOf(bytes, mimeType).map((part) => Buffer.from(part));
    const part = parts[1 + below(random, parts.length - 1)];
    if (!part || part.length < 13) return Buffer.concat(parts);
    const at = 8 + below(random, part.length - 12);
    part[at] = EXTREMES[below(random, 4)] ?? 0;
    if (mimeType === "image/png") part.writeUInt32BE(crc32(part.subarray(4, -4)), part.length - 4);
    return Buffer.concat(parts);
  },
};

/** A damaged copy of an image; the same seed gives the same damage. */
export function mutate(
  bytes: Buffer,
  seed: number,
  mimeType: ImageMimeType,
): { kind: string; bytes: Buffer } {
  const random = seededRandom(seed);
  const kinds = Object.entries(MUTATIONS);
  const [kind, mutation] = kinds[seed % kinds.length] as [string, Mutation];
  return { kind, bytes: mutation(bytes, random, mimeType) };
}

/** The head of a file, and the chunks or segments behind it; all in all the whole file. */
function partsOf(bytes: Buffer, mimeType: ImageMimeType): Buffer[] {
  const head = mimeType === "image/png" ? 8 : mimeType === "image/webp" ? 12 : 2;
  const parts = [bytes.subarray(0, head)];
  for (let at = head; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + Math.max(2, partLength(bytes, at, mimeType)));
    parts.push(bytes.subarray(at, end));
    at = end;
  }
  return parts;
}

function partLength(bytes: Buffer, at: number, mimeType: ImageMimeType): number {
  if (at + 8 > bytes.length) return bytes.length - at;
  if (mimeType === "image/png") return bytes.readUInt32BE(at) + 12;
  if (mimeType === "image/webp") return 8 + bytes.readUInt32LE(at + 4) + (bytes.readUInt32LE(at + 4) % 2);
  // Behind the start of scan there are no lengths any more.
  return bytes[at + 1] === 0xda ? bytes.length - at : 2 + bytes.readUInt16BE(at + 2);
}
