import { join } from "node:path";
import type { BatchItem } from "../../client/batch.ts";
import { getContent } from "../../client/download.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import { mayPass } from "../../http/retries.ts";
import type { ResultFile, Verified } from "../directory/verified-files.ts";
import { isIntact, writeVerified } from "../directory/verified-files.ts";
import { requireOfOne } from "./error-scope.ts";
import { type Fetched, type Fetches, type FetchJob, fileAt, pathFor, weakest } from "./fetch-job.ts";

/** After this many items in a row without an answer, the service counts as unreachable. */
const MOST_UNANSWERED = 2;

/**
 * Fetches the images of some items one by one. Intact files stay as they are, and a problem with one image does not stop
 * the others. Throws errors that concern all images, and the error of the first of `mostUnanswered` items in a row
 * without an answer.
 */
export async function fetchByContent(
  job: FetchJob,
  items: readonly BatchItem[],
  mostUnanswered = MOST_UNANSWERED,
): Promise<Fetches> {
  const fetches: Fetches = { byItem: new Map(), problems: new Map() };
  const unanswered: ImgbatchError[] = [];
  for (const item of items) {
    job.signal?.throwIfAborted();
    const { fetched, problem } = await fetchItem(job, item);
    if (fetched.files.length > 0) fetches.byItem.set(item.customId, fetched);
    if (problem !== null) fetches.problems.set(item.customId, problem);
    if (problem !== null && mayPass(problem)) unanswered.push(problem);
    else unanswered.splice(0);
    if (unanswered.length >= mostUnanswered) throw unanswered[0];
  }
  if (unanswered.length > 0 && unanswered.length === items.length) throw unanswered[0];
  return fetches;
}

async function fetchItem(
  job: FetchJob,
  item: BatchItem,
): Promise<{ fetched: Fetched; problem: ImgbatchError | null }> {
  const line = job.earlier.get(item.customId);
  const files: ResultFile[] = [];
  const checks: Verified[] = [];
  let problem: ImgbatchError | null = null;
  for (let index = 0; index < item.imageCount; index++) {
    job.signal?.throwIfAborted();
    const known = fileAt(line, index);
    if (known !== undefined && (await isIntact(job.dir, known))) {
      files.push({ ...known, image_index: index });
      checks.push(line?.verified ?? null);
      continue;
    }
    job.reporter.progress(`fetching ${item.customId}`);
    try {
      const placed = await fetchOne(job, item.customId, index, known);
      files.push({ ...placed.file, image_index: index });
      checks.push(placed.verified);
    } catch (error) {
      const ofOne = requireOfOne(error, job.signal);
      problem ??= ofOne;
      if (mayPass(ofOne)) break;
    }
  }
  const verified = weakest(checks);
  if (problem !== null) return { fetched: { files, verified }, problem };
  const whole = files.map(({ image_index: _, ...file }) => file);
  return { fetched: { files: whole, verified }, problem };
}

async function fetchOne(
  job: FetchJob,
  customId: string,
  index: number,
  known: ResultFile | undefined,
): Promise<{ file: ResultFile; verified: Verified }> {
  const { data, sha256 } = await getContent(job.http, job.batch.id, customId, index, job.signal);
  const type = sniffImageType(data);
  if (type === null)
    throw new ImgbatchError(
      "VERIFY_FAILED",
      `The bytes received for ${customId} are not a PNG, JPEG or WebP image.`,
    );
  const path = pathFor(job, customId, index, type);
  const stated = job.stated?.get(customId)?.[index];
  const said = sha256 ?? stated?.sha256 ?? null;
  const bytes = known === undefined && sha256 === null ? (stated?.bytes ?? null) : null;
  const expected = { sha256: known?.sha256 ?? said, bytes, crc32: null };
  const { file } = await writeVerified([data], join(job.dir, path), expected, path);
  // Matching the earlier hash proves nothing new: keep the earlier `verified`.
  const before = known === undefined ? null : (job.earlier.get(customId)?.verified ?? null);
  return { file: { path, ...file }, verified: said === null ? before : "sha256" };
}
