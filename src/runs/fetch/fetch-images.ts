import { existsSync } from "node:fs";
import { join } from "node:path";
import { type BatchItem, hasImages } from "../../client/answers.ts";
import { getContent } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { type ErrorCode, ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import { mayPass } from "../../http/retries.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { IMAGES_FOLDER } from "../directory/names.ts";
import { type CheckedFile, writeVerified } from "../directory/run-files.ts";
import {
  type FetchedImages,
  type Fetching,
  type FetchJob,
  fileAt,
  intactFiles,
  pathFor,
  reportSaved,
  scopeOf,
} from "./fetch-job.ts";
import { isZipFallback, unpackKeptZip, unpackZip, zipName } from "./fetch-zip.ts";

/** Up to this many items are fetched one by one when the others are intact. More come as a ZIP. */
const FEW = 8;
/** Another way may bring the image of such an error. */
const DOUBTFUL: readonly ErrorCode[] = ["VERIFY_FAILED", "NOT_FOUND"];

/**
 * Fetches the missing and damaged images of a batch, and no others: as a ZIP or one by one, and what came wrong the other
 * way too. Throws errors that concern the whole run. `withoutZip`: the service has no ZIP of the batch.
 */
export async function fetchImages(
  job: FetchJob,
  { withoutZip = false }: { withoutZip?: boolean } = {},
): Promise<FetchedImages> {
  const work: Fetching = {
    ...job,
    here: new Map(),
    problems: new Map(),
    stated: new Map(),
    mostUnanswered: 2,
  };
  const { dir, here, problems, reporter } = work;
  const wanted = job.wanted.filter(hasImages);
  for (const item of wanted) here.set(item.customId, await intactFiles(job, item));
  const isLacking = ({ customId, imageCount }: BatchItem) => (here.get(customId)?.size ?? 0) < imageCount;
  const missing = wanted.filter(isLacking);
  const before = new Set([...here.values()].flatMap((files) => [...files.values()]));
  let failure: ImgbatchError | null = null;
  if (missing.length > 0) {
    const images = join(dir, IMAGES_FOLDER);
    if (job.gone === null || existsSync(join(dir, zipName(job.batch.id))))
      await saving(images, () => makeDirectory(images));
    for (const way of waysFor(job, missing, withoutZip)) {
      const isOpen = (item: BatchItem) => {
        const problem = problems.get(item.customId);
        return isLacking(item) && (problem === undefined || DOUBTFUL.includes(problem.code));
      };
      const open = missing.filter(isOpen);
      if (open.length === 0) break;
      const [problem] = open.flatMap(({ customId }) => problems.get(customId) ?? []);
      if (problem !== undefined) reporter.detail(`${problem.message} Trying ${TRYING[way]}.`);
      try {
        await WAYS[way](work, open);
      } catch (error) {
        if (!(error instanceof ImgbatchError) || scopeOf(error, job) === "run") throw error;
        if (way === "zip" && isZipFallback(error)) {
          reporter.detail(`${error.message} Trying ${TRYING.single}.`);
          // The connection already broke once: stop at the first image without an answer.
          if (error.code === "NETWORK") work.mostUnanswered = 1;
          continue;
        }
        failure = error;
        break;
      }
    }
    failure ??= missing.some(isLacking) ? job.gone : null;
    for (const at of [dir, images]) if (existsSync(at)) await saving(at, () => syncDirectory(at));
  }
  const lacking = missing.filter(isLacking);
  for (const { customId } of lacking) {
    const problem = job.gone ?? problems.get(customId) ?? failure;
    if (problem !== null) problems.set(customId, problem);
  }
  for (const [custom_id, files] of here)
    for (const file of files.values()) if (!before.has(file)) reportSaved(job, custom_id, file);
  return { here, problems, failure, fetchedCount: missing.length - lacking.length };
}

type Way = "zip" | "kept" | "single";

const WAYS: Record<Way, (work: Fetching, items: readonly BatchItem[]) => Promise<void>> = {
  zip: unpackZip,
  kept: unpackKeptZip,
  single: fetchSingly,
};
const TRYING: Record<Way, string> = { zip: "the ZIP", kept: "the ZIP", single: "the images one by one" };

function waysFor({ gone, earlier }: FetchJob, missing: readonly BatchItem[], withoutZip: boolean): Way[] {
  if (gone !== null) return ["kept"];
  if (withoutZip) return ["single"];
  // An image that was wrong before must be compared with the manifest, which only the ZIP has.
  const isRepairable = ({ customId }: BatchItem) => {
    const line = earlier.get(customId);
    return line !== undefined && line.error?.code !== "VERIFY_FAILED";
  };
  const isRepair = missing.length <= FEW && missing.every(isRepairable);
  return isRepair ? ["single", "zip"] : ["zip", "single"];
}

/**
 * Fetches the missing images of some items one by one. A problem with one image does not stop the others. Throws errors
 * that concern all images, and the first error of `mostUnanswered` items in a row without an answer, or of all items.
 */
async function fetchSingly(work: Fetching, items: readonly BatchItem[]): Promise<void> {
  const { problems } = work;
  const unanswered: ImgbatchError[] = [];
  for (const item of items) {
    work.signal?.throwIfAborted();
    const problem = await fetchItem(work, item);
    if (problem === null) problems.delete(item.customId);
    else problems.set(item.customId, problem);
    if (problem !== null && mayPass(problem)) unanswered.push(problem);
    else unanswered.splice(0);
    if (unanswered.length >= Math.min(work.mostUnanswered, items.length)) throw unanswered[0];
  }
}

async function fetchItem(work: Fetching, { customId, imageCount }: BatchItem): Promise<ImgbatchError | null> {
  const files = work.here.get(customId);
  let problem: ImgbatchError | null = null;
  for (let index = 0; index < imageCount; index++) {
    if (files?.has(index)) continue;
    work.signal?.throwIfAborted();
    work.reporter.progress(`fetching ${customId}`);
    try {
      files?.set(index, await fetchOne(work, customId, index));
    } catch (error) {
      if (!(error instanceof ImgbatchError) || scopeOf(error, work) !== "image") throw error;
      problem ??= error;
      if (mayPass(error)) break;
    }
  }
  return problem;
}

async function fetchOne(work: Fetching, customId: string, index: number): Promise<CheckedFile> {
  const { dir, earlier } = work;
  const { data, sha256 } = await getContent(work.http, work.batch.id, customId, index, work.signal);
  const type = sniffImageType(data);
  if (type === null)
    throw new ImgbatchError(
      "VERIFY_FAILED",
      `The bytes received for ${customId} are not a PNG, JPEG or WebP image.`,
    );
  const path = pathFor(work, customId, index, type);
  const known = fileAt(earlier.get(customId), index);
  const stated = work.stated.get(customId)?.[index];
  const said = sha256 ?? stated?.sha256 ?? null;
  const bytes = known === undefined && sha256 === null ? (stated?.bytes ?? null) : null;
  const expected = { sha256: known?.sha256 ?? said, bytes, crc32: null };
  const { file } = await writeVerified([data], join(dir, path), expected, path);
  // Matching the earlier hash proves nothing new: keep the earlier `verified`.
  const before = known === undefined ? null : (earlier.get(customId)?.verified ?? null);
  return { file: { path, ...file }, verified: said === null ? before : "sha256" };
}
