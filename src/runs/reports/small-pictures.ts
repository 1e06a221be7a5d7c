import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileHref, type ReportImage } from "./run-report.ts";

/** Makes a small WebP of a picture, its longer side at most `maxEdgePx`; null when it cannot. */
export type MakeThumbnail = (bytes: Buffer, maxEdgePx: number) => Promise<Uint8Array | null>;

/** The most pictures in the page itself; the others are read from their files when they come into sight. */
const MAX_EMBEDDED = 2000;
const MAX_EMBEDDED_BYTES = 32_000_000;
/** The number of pictures that are made small at once. */
const AHEAD = 4;

/** Few pictures may be sharp on every screen; of many, each must be small. */
function edgeFor(count: number): number {
  if (count <= 120) return 480;
  return count <= 600 ? 320 : 224;
}

/**
 * The images in order, each with the addresses for its small pictures: data in the page itself, within bounds, else
 * its file. Never holds more than a few pictures at once.
 */
export async function* withSmallPictures(
  dir: string,
  images: readonly ReportImage[],
  thumbnail: MakeThumbnail | null,
  signal?: AbortSignal,
): AsyncGenerator<{ image: ReportImage; sources: string[] }> {
  const count = images.reduce((sum, { files }) => sum + files.length, 0);
  const edgePx = edgeFor(count);
  let embedded = 0;
  let embeddedBytes = 0;
  const sourceOf = async (path: string, isZipped: boolean): Promise<string> => {
    const isFull = embedded >= MAX_EMBEDDED || embeddedBytes >= MAX_EMBEDDED_BYTES;
    if (thumbnail === null || isZipped || isFull) return fileHref(path);
    embedded++;
    const bytes = await readFile(join(dir, path)).catch(() => null);
    const small = bytes === null ? null : await thumbnail(bytes, edgePx).catch(() => null);
    if (small === null) return fileHref(path);
    embeddedBytes += small.byteLength;
    return `data:image/webp;base64,${Buffer.from(small).toString("base64")}`;
  };
  const prepare = async (image: ReportImage) => ({
    image,
    sources: await Promise.all(image.files.map(({ path, entry }) => sourceOf(path, entry !== undefined))),
  });
  const pending: ReturnType<typeof prepare>[] = [];
  for (const image of images) {
    signal?.throwIfAborted();
    pending.push(prepare(image));
    if (pending.length >= AHEAD) yield await (pending.shift() as (typeof pending)[number]);
  }
  for (const each of pending) yield await each;
}
