import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import sharp from "sharp";

export type ImageType = "png" | "jpeg" | "webp";

/** In pixels. */
export const SMALL = { width: 64, height: 64 };

/** By how much an image is huge. As Base64 it is a third larger: 29 MB when `IMGBATCH_SOAK` is set. */
export const HUGE_BYTES = process.env.IMGBATCH_SOAK ? 22_000_000 : 3_000_000;

/** In pixels. */
export interface Size {
  width: number;
  height: number;
}

export interface ImageWish extends Size {
  /** Default `png`. */
  type?: ImageType | undefined;
  /** Which of several images of one prompt; each has another colour. */
  index?: number;
}

const CACHED = 64;
const cache = new Map<string, Promise<Buffer>>();

/** The colour of a prompt: red, green and blue from 0 to 255. */
function colourOf(prompt: string, index = 0): [number, number, number] {
  const [red = 0, green = 0, blue = 0] = createHash("sha256").update(`${index} ${prompt}`).digest();
  return [red, green, blue];
}

/** A whole image in the colour of a prompt. The same wish gets the same bytes. */
export function imageOf(
  prompt: string,
  { width, height, type = "png", index = 0 }: ImageWish,
): Promise<Buffer> {
  const key = JSON.stringify([prompt, width, height, type, index]);
  const known = cache.get(key);
  if (known !== undefined) return known;
  const [r, g, b] = colourOf(prompt, index);
  const image = sharp({ create: { width, height, channels: 3, background: { r, g, b } } })
    .toFormat(type)
    .toBuffer();
  cache.set(key, image);
  const oldest = cache.keys().next().value;
  if (cache.size > CACHED && oldest !== undefined) cache.delete(oldest);
  return image;
}

/** Whether an image has the colour of a prompt, near enough for a lossy format. */
export async function showsPrompt(image: Buffer, prompt: string, index = 0): Promise<boolean> {
  // A single pixel is the mean of all.
  const mean = await sharp(image)
    .resize(1, 1, { fit: "fill" })
    .removeAlpha()
    .toColourspace("srgb")
    .raw()
    .toBuffer();
  return colourOf(prompt, index).every((value, at) => Math.abs((mean[at] ?? -99) - value) < 8);
}

/** A PNG with this many more bytes, in a chunk that viewers skip. */
export function padded(png: Buffer, bytes: number): Buffer {
  const typed = Buffer.concat([Buffer.from("teSt"), Buffer.alloc(bytes, "x")]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(bytes);
  sum.writeUInt32BE(crc32(typed));
  const end = png.length - 12;
  return Buffer.concat([png.subarray(0, end), length, typed, sum, png.subarray(end)]);
}

export interface Seen {
  type: string;
  width: number;
  height: number;
}

/** Type and size of an image; null for bytes that are none. */
export async function lookAt(bytes: Buffer): Promise<Seen | null> {
  const { format, width, height } = await sharp(bytes)
    .metadata()
    .catch(() => ({ format: undefined, width: 0, height: 0 }));
  return format === undefined ? null : { type: format, width, height };
}
