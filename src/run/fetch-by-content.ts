import { join } from "node:path";
import { getContent } from "../client/content.ts";
import type { BatchItem } from "../client/read-lists.ts";
import { IMAGE_EXTENSIONS, sniffImageType } from "../contract/image-types.ts";
import { truncateBytes } from "../kernel/text.ts";
import type { Fetched, FetchJob } from "./fetch-job.ts";
import { placeFile } from "./place-file.ts";
import type { ResultFile } from "./results.ts";
import { isImagePath, isSound } from "./sound-files.ts";

/** Fetches the images of some items one by one; files that are sound stay as they are. */
export async function fetchByContent(
  job: FetchJob,
  items: readonly BatchItem[],
): Promise<Map<string, Fetched>> {
  const fetched = new Map<string, Fetched>();
  for (const item of items) {
    const line = job.earlier.get(item.customId);
    const files: ResultFile[] = [];
    let verified: Fetched["verified"] = "sha256";
    for (let index = 0; index < item.imageCount; index++) {
      const known = line?.files[index];
      if (known !== undefined && (await isSound(job.dir, known))) {
        files.push(known);
        continue;
      }
      job.voice.progress(`fetching ${item.customId}`);
      const placed = await fetchOne(job, item.customId, index, known);
      files.push(placed.file);
      if (placed.verified !== "sha256") verified = placed.verified;
    }
    fetched.set(item.customId, { files, verified });
  }
  return fetched;
}

async function fetchOne(
  job: FetchJob,
  customId: string,
  index: number,
  known: ResultFile | undefined,
): Promise<{ file: ResultFile; verified: Fetched["verified"] }> {
  const { data, sha256 } = await getContent(job.http, job.batch.id, customId, index, job.signal);
  const path =
    known !== undefined && isImagePath(known.path)
      ? known.path
      : job.names.take(fileName(customId, index, data));
  const expected = { sha256: known?.sha256 ?? sha256, bytes: data.length, crc32: null };
  const placed = await placeFile([data], join(job.dir, path), expected, path);
  return { file: { path, ...placed.file }, verified: placed.verified };
}

/** A name for an image that came without one. */
export function fileName(customId: string, index: number, data: Uint8Array): string {
  const type = sniffImageType(data);
  const stem = truncateBytes(customId.replace(/[\p{Cc}/\\:*?"<>|]/gu, "_"), 120);
  return `${stem}${index === 0 ? "" : `_${index + 1}`}.${type === null ? "bin" : IMAGE_EXTENSIONS[type]}`;
}
