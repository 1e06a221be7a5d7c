import { open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { ImgbatchError } from "../contract/errors.ts";
import { syncDirectory } from "../kernel/durable-file.ts";
import type { Http } from "./http.ts";
import { saving } from "./saving.ts";

export interface DownloadOptions {
  http: Http;
  /** From the base URL on, with the query. */
  path: string;
  /** Where the file goes when it is whole. Until then the bytes are in `<target>.part`, and can be resumed. */
  target: string;
  signal?: AbortSignal | undefined;
  /** Bytes so far, and in all when the service says. */
  onProgress?: (bytes: number, total: number | null) => void;
}

export interface Downloaded {
  bytes: number;
  /** As the service gave it, with quotes; null when it gave none. */
  etag: string | null;
}

/** The files beside a target while it is half there. */
export function partFiles(target: string): { part: string; etag: string } {
  return { part: `${target}.part`, etag: `${target}.part.etag` };
}

/**
 * Downloads into a file that is whole or absent. A broken transfer goes on where it stopped, also in a later process,
 * as long as the service still has the same bytes (strong ETag). Throws what `Http` throws, `SAVE_FAILED` for the disk.
 * Rules: HTTP-19, HTTP-20, HTTP-21.
 */
export async function downloadFile(options: DownloadOptions): Promise<Downloaded> {
  const { http, target, signal } = options;
  const files = partFiles(target);
  const done = await http.stream(
    async () => {
      const resume = await resumePoint(files);
      return {
        method: "GET",
        path: options.path,
        headers: { "accept-encoding": "identity", ...resume },
        signal,
      };
    },
    (response, alive) => receive(response, files, options, alive),
  );
  await saving(target, async () => {
    await rename(files.part, target);
    await rm(files.etag, { force: true });
    await syncDirectory(dirname(target));
  });
  return done;
}

async function resumePoint(files: { part: string; etag: string }): Promise<Record<string, string>> {
  const size = (await stat(files.part).catch(() => null))?.size ?? 0;
  const etag = await readFile(files.etag, "utf8").catch(() => null);
  if (size === 0 || etag === null || !/^"[\x21\x23-\x7e]*"$/.test(etag)) return {};
  return { range: `bytes=${size}-`, "if-range": etag };
}

async function receive(
  response: Response,
  files: { part: string; etag: string },
  options: DownloadOptions,
  alive: () => void,
): Promise<Downloaded> {
  const { target } = options;
  const start = response.status === 206 ? await rangeStart(response, files.part) : 0;
  if (start === null || response.status === 416) {
    await saving(target, () => rm(files.part, { force: true }));
    throw new ImgbatchError("NETWORK", "The download could not be resumed; it starts again.");
  }
  const etag = response.headers.get("etag");
  await saving(target, () => (etag === null ? rm(files.etag, { force: true }) : writeFile(files.etag, etag)));
  const total = expectedBytes(response, start);
  let bytes = start;
  const file = await saving(target, () => open(files.part, start === 0 ? "w" : "a"));
  try {
    for await (const chunk of response.body ?? []) {
      alive();
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

/** Null when the answer is not the rest of what is on disk. */
async function rangeStart(response: Response, part: string): Promise<number | null> {
  const [, from] = /^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "") ?? [];
  const size = (await stat(part).catch(() => null))?.size ?? 0;
  return from !== undefined && Number(from) === size ? size : null;
}

function expectedBytes(response: Response, start: number): number | null {
  if (response.headers.has("content-encoding")) return null;
  const length = response.headers.get("content-length");
  return length === null ? null : start + Number(length);
}
