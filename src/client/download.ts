import { lstat, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { ImgbatchError } from "../contract/errors.ts";
import type { ImageMimeType } from "../contract/image-formats.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { type Answer, boundedBytes } from "../http/transport.ts";
import { requireWriteRoot, syncDirectory } from "../kernel/files.ts";
import { saving } from "./file-errors.ts";

/** No ZIP of images is longer. A longer answer would fill the disk. */
const MAX_BYTES = 16 * 1024 * 1024 * 1024;

interface DownloadOptions {
  http: Http;
  /** From the base URL on, with the query. */
  path: string;
  /** The path of the whole file. Until it is whole, its bytes are in `<target>.part` and can be resumed. */
  target: string;
  signal?: AbortSignal | undefined;
  /** Called with the bytes so far, and the bytes in all or null when the service does not say. */
  onProgress?: (bytes: number, total: number | null) => void;
}

interface Downloaded {
  bytes: number;
  /** As the service sent it, with quotes. Null when it sent none. */
  etag: string | null;
}

/** The files beside a target while its download is not finished. */
function partFiles(target: string): { part: string; etag: string } {
  return { part: `${target}.part`, etag: `${target}.part.etag` };
}

/**
 * Downloads into a file that is whole or absent. A broken transfer continues where it stopped, also in a later process,
 * as long as the service still has the same bytes (strong ETag, RFC 9110 section 13.1.5). A part that cannot be resumed
 * is removed; so is any part when the disk refuses, since it may be full. Throws the errors of `Http`, and `SAVE_FAILED`.
 */
export async function downloadFile(options: DownloadOptions): Promise<Downloaded> {
  const { http, target, signal } = options;
  const files = partFiles(target);
  const request = async () => ({
    method: "GET" as const,
    path: options.path,
    headers: { "accept-encoding": "identity", ...(await resumePoint(files)) },
    signal,
    elsewhere: true,
  });
  let done: Downloaded;
  try {
    done = await http.stream(request, (response) => receive(response, files, options));
  } catch (error) {
    await dropUseless(files, error);
    throw error;
  }
  await saving(target, async () => {
    await rename(files.part, target);
    await rm(files.etag, { force: true });
    await syncDirectory(dirname(target));
  });
  return done;
}

interface PartFiles {
  part: string;
  etag: string;
}

async function resumePoint(files: PartFiles): Promise<Record<string, string>> {
  const size = await sizeOf(files.part);
  const etag = await strongEtag(files);
  return size === 0 || etag === null ? {} : { range: `bytes=${size}-`, "if-range": etag };
}

/** Returns 0 for anything but an ordinary file: a link could lead anywhere. */
async function sizeOf(path: string): Promise<number> {
  const stats = await lstat(path).catch(() => null);
  return stats?.isFile() ? stats.size : 0;
}

async function strongEtag(files: PartFiles): Promise<string | null> {
  const etag = await readFile(files.etag, "utf8").catch(() => null);
  return etag !== null && /^"[\x21\x23-\x7e]*"$/.test(etag) ? etag : null;
}

async function dropUseless(files: PartFiles, error: unknown): Promise<void> {
  const isRefusedByDisk = error instanceof ImgbatchError && error.code === "SAVE_FAILED";
  if (!isRefusedByDisk && (await strongEtag(files)) !== null && (await sizeOf(files.part)) > 0) return;
  for (const path of [files.part, files.etag]) await rm(path, { force: true }).catch(() => {});
}

async function receive(response: Answer, files: PartFiles, options: DownloadOptions): Promise<Downloaded> {
  const { target } = options;
  const start = response.status === 206 ? await rangeStart(response, files) : 0;
  if (start === null || response.status === 416) {
    await saving(target, () => rm(files.part, { force: true }));
    throw new ImgbatchError("NETWORK", "The download could not be resumed; it starts again.");
  }
  const etag = response.headers.get("etag");
  // When bytes were encoded on the way, the offset on disk differs from the offset in the range.
  const isResumable = etag !== null && !response.headers.has("content-encoding");
  if (start === 0) {
    await saving(target, async () => {
      await rm(files.part, { force: true });
      await (isResumable ? writeFile(files.etag, etag) : rm(files.etag, { force: true }));
    });
  }
  const total = expectedBytes(response, start);
  if (total !== null && total > MAX_BYTES) throw endless();
  let bytes = start;
  const file = await saving(target, () => open(files.part, start === 0 ? "wx" : "a"));
  try {
    await saving(target, () => requireWriteRoot(file.fd, files.part));
    for await (const chunk of response.body) {
      if (bytes + chunk.length > MAX_BYTES) throw endless();
      await saving(target, () => file.appendFile(chunk));
      bytes += chunk.length;
      options.onProgress?.(bytes, total);
    }
    await saving(target, () => file.sync());
  } finally {
    await file.close();
  }
  if (total !== null && bytes !== total) {
    throw new ImgbatchError("NETWORK", `The download ended after ${bytes} of ${total} bytes.`);
  }
  return { bytes, etag };
}

function endless(): ImgbatchError {
  return new ImgbatchError("BAD_RESPONSE", "The download is larger than any ZIP of images.");
}

/** Null when the answer does not continue the part on disk. */
async function rangeStart(response: Answer, files: PartFiles): Promise<number | null> {
  const [, from] = /^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "") ?? [];
  const size = await sizeOf(files.part);
  const etag = response.headers.get("etag");
  const isSame = size === 0 || etag === null || etag === (await strongEtag(files));
  return isSame && from !== undefined && Number(from) === size ? size : null;
}

function expectedBytes(response: Answer, start: number): number | null {
  if (response.headers.has("content-encoding")) return null;
  const [, whole] = /^bytes \d+-\d+\/(\d+)$/.exec(response.headers.get("content-range") ?? "") ?? [];
  if (response.status === 206 && whole !== undefined) return Number(whole);
  const length = response.headers.get("content-length");
  return length === null ? null : start + Number(length);
}

/** No image is larger. A longer answer would fill the memory. */
const MAX_IMAGE_BYTES = 256 * 1024 * 1024;

interface Content {
  data: Buffer;
  /** SHA-256 in hexadecimal digits when the ETag is one, else null. */
  sha256: string | null;
  /** Null when the service did not say. */
  contentType: string | null;
}

/**
 * Gets the bytes of one image of an item. `index` counts from 0. `type`: the service is to convert it, which other services
 * may not do; default: as it is. `isEarly`: the batch need not have ended, which other services may not allow. Throws the
 * service's errors and `NETWORK`.
 */
export async function getContent(
  http: Http,
  batchId: string,
  customId: string,
  index: number,
  {
    signal,
    type,
    isEarly,
  }: { signal?: AbortSignal | undefined; type?: ImageMimeType; isEarly?: boolean } = {},
): Promise<Content> {
  const as = type === undefined ? "" : `&mime_type=${encodeURIComponent(type)}`;
  const early = isEarly === true ? "&early=true" : "";
  const path = `${routes.content(batchId, customId)}?image_index=${index}${as}${early}`;
  return http.stream(
    async () => ({
      method: "GET",
      path,
      headers: { "accept-encoding": "identity" },
      signal,
      elsewhere: true,
    }),
    async (response) => {
      const data = await boundedBytes(response.body, MAX_IMAGE_BYTES);
      if (data === null) throw new ImgbatchError("BAD_RESPONSE", `An image of ${customId} has no end.`);
      requireWhole(response, data.length);
      const [, sha256 = null] = /^"([0-9a-f]{64})"$/.exec(response.headers.get("etag") ?? "") ?? [];
      return { data, sha256, contentType: response.headers.get("content-type") };
    },
  );
}

function requireWhole(response: Answer, bytes: number): void {
  const length = response.headers.get("content-length");
  if (length === null || response.headers.has("content-encoding") || Number(length) === bytes) return;
  throw new ImgbatchError("NETWORK", `An image ended after ${bytes} of ${length} bytes.`);
}
