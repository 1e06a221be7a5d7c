import { type BatchItem, hasImages } from "../../client/batch.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import type { ResultFile } from "../directory/verified-files.ts";
import { isIntact } from "../directory/verified-files.ts";
import type { FetchedImages } from "../fetch/fetch-images.ts";
import { type FetchJob, fileAt } from "../fetch/fetch-job.ts";

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
