import { existsSync } from "node:fs";
import { join } from "node:path";
import { type BatchItem, hasImages } from "../../client/batch.ts";
import { saving } from "../../client/file-errors.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { IMAGES_FOLDER } from "../directory/names.ts";
import type { ResultLine } from "../directory/results.ts";
import { isIntact, isWholeResult, type ResultFile } from "../directory/run-files.ts";
import {
  type Fetched,
  type Fetches,
  type FetchJob,
  fetchByContent,
  fileAt,
  isZipFallback,
} from "./fetch-by-content.ts";
import { fetchByZip, takeThere, zipName } from "./fetch-zip.ts";

export interface FetchedImages extends Fetches {
  /** Items whose files were not here before. */
  fetchedCount: number;
}

/** Up to this many items are fetched one by one when the others are intact. More come as a ZIP. */
const FEW = 8;

/**
 * Fetches the missing and damaged images of a batch, and no others. When this resolves, every successful item has its
 * verified files, or a problem. Throws errors that concern all images: the reason why they are gone, the service's errors,
 * `NETWORK`, `SAVE_FAILED`.
 */
export async function fetchImages(job: FetchJob): Promise<FetchedImages> {
  const wanted = job.wanted.filter(hasImages);
  const byItem = job.keepZip ? new Map<string, Fetched>() : await intactItems(job, wanted);
  const missing = wanted.filter((item) => !byItem.has(item.customId));
  if (missing.length === 0) return { byItem, problems: new Map(), fetchedCount: 0 };
  const { gone } = job;
  const images = join(job.dir, IMAGES_FOLDER);
  if (gone !== null) {
    const zip = zipName(job.batch.id);
    if (!existsSync(join(job.dir, zip))) throw gone;
    if (!job.keepZip) await saving(images, () => makeDirectory(images));
    const kept = await takeThere(job, missing, zip);
    if (kept === null) throw gone;
    const problems = new Map([...kept.problems.keys()].map((id) => [id, gone]));
    const fetchedCount = job.keepZip ? 0 : missing.length - problems.size;
    return { byItem: new Map([...byItem, ...kept.byItem]), problems, fetchedCount };
  }
  if (!job.keepZip) await saving(images, () => makeDirectory(images));
  const { byItem: found, problems } = await fetchMissing(job, missing);
  for (const [customId, fetched] of found) {
    byItem.set(customId, fetched);
    for (const { path, bytes, sha256 } of fetched.files) {
      const file = { path, bytes, sha256 };
      job.reporter.event?.({ event: "file_saved", batch_id: job.batch.id, custom_id: customId, ...file });
    }
  }
  for (const at of [job.dir, images]) if (existsSync(at)) await saving(at, () => syncDirectory(at));
  return { byItem, problems, fetchedCount: missing.length - problems.size };
}

async function intactItems(job: FetchJob, wanted: readonly BatchItem[]): Promise<Map<string, Fetched>> {
  const intact = new Map<string, Fetched>();
  for (const { customId } of wanted) {
    job.signal?.throwIfAborted();
    const line = job.earlier.get(customId);
    if (line === undefined || line.error !== undefined || !(await isWholeResult(job.dir, line))) continue;
    intact.set(customId, { files: line.files, verified: line.verified ?? null });
  }
  return intact;
}

async function fetchMissing(job: FetchJob, missing: readonly BatchItem[]): Promise<Fetches> {
  // An image that was wrong before must be compared with the manifest, which only the ZIP has.
  const isRepairable = ({ customId }: BatchItem) => {
    const line = job.earlier.get(customId);
    return line !== undefined && line.error?.code !== "VERIFY_FAILED";
  };
  const isRepair = !job.keepZip && missing.length <= FEW && missing.every(isRepairable);
  return isRepair ? contentFirst(job, missing) : zipFirst(job, missing);
}

/** Fetches single images, and then tries the ZIP for those that came wrong. */
async function contentFirst(job: FetchJob, missing: readonly BatchItem[]): Promise<Fetches> {
  const single = await fetchByContent(job, missing);
  const doubtful = missing.filter(({ customId }) => {
    const code = single.problems.get(customId)?.code;
    return code === "VERIFY_FAILED" || code === "NOT_FOUND";
  });
  if (doubtful.length === 0) return single;
  job.reporter.detail(`${single.problems.get(doubtful[0]?.customId ?? "")?.message} Trying the ZIP.`);
  try {
    const { byItem, problems } = await fetchByZip(job, doubtful);
    for (const { customId } of doubtful) {
      const fetched = byItem.get(customId);
      if (fetched === undefined || problems.has(customId)) continue;
      single.byItem.set(customId, fetched);
      single.problems.delete(customId);
    }
  } catch (error) {
    job.signal?.throwIfAborted();
    if (!isZipFallback(error)) throw error;
  }
  return single;
}

async function zipFirst(job: FetchJob, missing: readonly BatchItem[]): Promise<Fetches> {
  let zipped: Fetches;
  try {
    zipped = await fetchByZip(job, missing);
  } catch (error) {
    job.signal?.throwIfAborted();
    if (!isZipFallback(error)) throw error;
    if (job.keepZip) job.reporter.note(`${error.message} The images come one by one instead of the ZIP.`);
    else job.reporter.detail(`${error.message} Trying the images one by one.`);
    // The connection already broke once: stop at the first image without an answer.
    return fetchByContent(job, missing, error.code === "NETWORK" ? 1 : undefined);
  }
  const rest = missing.filter((item) => zipped.problems.has(item.customId));
  if (rest.length === 0) return zipped;
  job.reporter.detail(`${zipped.problems.get(rest[0]?.customId ?? "")?.message} Trying it alone.`);
  const known = { ...job, earlier: withFetched(job, zipped.byItem), stated: zipped.stated };
  const single = await fetchByContent(known, rest);
  return { byItem: new Map([...zipped.byItem, ...single.byItem]), problems: single.problems };
}

/** Adds the fetched files to the earlier lines, so that only missing images of an item are fetched. */
function withFetched(job: FetchJob, fetched: ReadonlyMap<string, Fetched>): Map<string, ResultLine> {
  const lines = new Map(job.earlier);
  for (const [custom_id, files] of fetched) {
    lines.set(custom_id, { custom_id, status: "success", batch_id: job.batch.id, ...files });
  }
  return lines;
}

/**
 * Returns the images of a batch that are intact on disk, when nothing can be fetched. Each other image gets `reason` as
 * its problem.
 */
export async function collectWithoutFetching(job: FetchJob, reason: ImgbatchError): Promise<FetchedImages> {
  const here: FetchedImages = { byItem: new Map(), problems: new Map(), fetchedCount: 0 };
  for (const item of job.wanted.filter(hasImages)) {
    const files = await intactFiles(job, item);
    const isWhole = files.length === item.imageCount;
    if (!isWhole) here.problems.set(item.customId, reason);
    if (files.length === 0) continue;
    const verified = job.earlier.get(item.customId)?.verified ?? null;
    const placed = isWhole ? files.map(({ image_index: _, ...file }) => file) : files;
    here.byItem.set(item.customId, { files: placed, verified });
  }
  return here;
}

async function intactFiles(job: FetchJob, item: BatchItem): Promise<ResultFile[]> {
  const line = job.earlier.get(item.customId);
  const files: ResultFile[] = [];
  for (let index = 0; index < item.imageCount; index++) {
    job.signal?.throwIfAborted();
    const file = fileAt(line, index);
    if (file !== undefined && (await isIntact(job.dir, file))) files.push({ ...file, image_index: index });
  }
  return files;
}
