import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { BatchItem } from "../client/read-lists.ts";
import { saving } from "../client/saving.ts";
import { type ErrorCode, ImgbatchError } from "../contract/errors.ts";
import { syncDirectory } from "../kernel/durable-file.ts";
import { fetchByContent } from "./fetch-by-content.ts";
import { fetchByZip } from "./fetch-by-zip.ts";
import type { Fetched, FetchJob } from "./fetch-job.ts";
import type { ResultLine } from "./results.ts";
import { IMAGES_FOLDER } from "./run-directory.ts";
import { isWholeResult } from "./sound-files.ts";

export interface FetchedImages {
  byItem: Map<string, Fetched>;
  /** Items whose files were not here before. */
  fetchedCount: number;
}

/** Up to this many items are fetched one by one when the others are fine; more come as a ZIP. */
const FEW = 8;

const TOO_BIG_FOR_A_ZIP: readonly ErrorCode[] = [
  "BATCH_IMAGE_DOWNLOAD_TOO_LARGE",
  "BATCH_IMAGE_ZIP_TOO_MANY_ITEMS",
];

/**
 * Gets what is missing or damaged of a batch's images, and nothing else. When this resolves, every successful item has
 * its files, verified. Throws the service's errors (`BATCH_IMAGE_OUTPUT_DELETED` among them), `VERIFY_FAILED`,
 * `SAVE_FAILED`.
 * Rules: RUN-4, RUN-19, RUN-20.
 */
export async function fetchImages(job: FetchJob): Promise<FetchedImages> {
  const wanted = job.items.filter((item) => item.status === "success" && item.imageCount > 0);
  const byItem = job.keepZip ? new Map<string, Fetched>() : await soundItems(job, wanted);
  const missing = wanted.filter((item) => !byItem.has(item.customId));
  if (missing.length === 0) return { byItem, fetchedCount: 0 };
  if (job.batch.status === "output_deleted") {
    throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${job.batch.id} were deleted.`);
  }
  if (!job.keepZip) {
    const images = join(job.dir, IMAGES_FOLDER);
    await saving(images, () => mkdir(images, { recursive: true }));
  }
  for (const [customId, fetched] of await fetchMissing(job, missing)) {
    byItem.set(customId, fetched);
    for (const { path, bytes, sha256 } of fetched.files) {
      const file = { path, bytes, sha256 };
      job.voice.event?.({ event: "file_saved", batch_id: job.batch.id, custom_id: customId, ...file });
    }
  }
  await saving(job.dir, () => syncDirectory(job.keepZip ? job.dir : join(job.dir, IMAGES_FOLDER)));
  return { byItem, fetchedCount: missing.length };
}

async function soundItems(job: FetchJob, wanted: readonly BatchItem[]): Promise<Map<string, Fetched>> {
  const sound = new Map<string, Fetched>();
  for (const { customId } of wanted) {
    job.signal?.throwIfAborted();
    const line = job.earlier.get(customId);
    if (line === undefined || !(await isWholeResult(job.dir, line))) continue;
    sound.set(customId, { files: line.files, verified: line.verified ?? "size" });
  }
  return sound;
}

async function fetchMissing(job: FetchJob, missing: readonly BatchItem[]): Promise<Map<string, Fetched>> {
  const isRepair =
    !job.keepZip && missing.length <= FEW && missing.every((item) => job.earlier.has(item.customId));
  if (isRepair) {
    try {
      return await fetchByContent(job, missing);
    } catch (error) {
      // What the service says of single images may be mended by the whole: other errors are the same for both.
      if (!(error instanceof ImgbatchError) || error.code !== "VERIFY_FAILED") throw error;
      job.voice.detail(`${error.message} Trying the ZIP.`);
    }
  }
  let fetched: Map<string, Fetched>;
  try {
    fetched = await fetchByZip(job, missing);
  } catch (error) {
    const isTooBig = error instanceof ImgbatchError && TOO_BIG_FOR_A_ZIP.includes(error.code);
    if (!isTooBig || job.keepZip) throw error;
    return fetchByContent(job, missing);
  }
  const absent = missing.filter((item) => (fetched.get(item.customId)?.files.length ?? 0) < item.imageCount);
  if (absent.length > 0 && job.keepZip) throw absentFromZip(absent);
  const earlier = withFetched(job, fetched);
  for (const [customId, files] of await fetchByContent({ ...job, earlier }, absent))
    fetched.set(customId, files);
  return fetched;
}

/** What is on disk already, so that of an item with several images only the absent ones are fetched. */
function withFetched(job: FetchJob, fetched: ReadonlyMap<string, Fetched>): Map<string, ResultLine> {
  const lines = new Map(job.earlier);
  for (const [custom_id, files] of fetched) {
    lines.set(custom_id, { custom_id, status: "success", batch_id: job.batch.id, ...files });
  }
  return lines;
}

function absentFromZip(absent: readonly BatchItem[]): ImgbatchError {
  const details = absent.map((item) => `no file for ${JSON.stringify(item.customId)}`);
  return new ImgbatchError("VERIFY_FAILED", "The ZIP does not hold every image of the batch.", { details });
}
