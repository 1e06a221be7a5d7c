import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Batch, type BatchItem, hasImages } from "../../client/answers.ts";
import { getContent } from "../../client/download.ts";
import { removeFile, saving } from "../../client/file-errors.ts";
import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { type ImageMimeType, sniffImageType } from "../../contract/image-formats.ts";
import type { Http } from "../../http/http.ts";
import { isOutOfCapacity, mayPass } from "../../http/retries.ts";
import { makeDirectory, regularFilePieces, syncDirectory } from "../../kernel/files.ts";
import { PASSING_PREFIX } from "../directory/claim.ts";
import { IMAGES_FOLDER } from "../directory/names.ts";
import { moveChangedAway, type ResultLine } from "../directory/results.ts";
import {
  type CheckedFile,
  inspect,
  isImagePath,
  isIntact,
  type ResultFile,
  writeVerified,
} from "../directory/run-files.ts";
import type { RunReporter } from "../directory/run-service.ts";
import { scopeOf } from "../standing.ts";
import { checkZip, downloadZip, saveZip, takeImages, type ZippedImage, zipName } from "./zip.ts";

/** The task of bringing the images of one batch to the disk, verified. */
interface FetchJob {
  http: Http;
  dir: string;
  batch: Batch;
  /** Why none of its images can be fetched; null if they can. */
  gone: ImgbatchError | null;
  /** All of the batch. */
  items: readonly BatchItem[];
  /** Those whose images are to be here. */
  wanted: readonly BatchItem[];
  /** The results of an earlier run of this batch in this directory, by item. */
  earlier: ReadonlyMap<string, ResultLine>;
  /** Returns a free path below `images/` for an image, always the same one. */
  pathFor: (customId: string, index: number, type: ImageMimeType) => string;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
}

/** The images of a batch that are here, and why the others are not. */
interface FetchedImages {
  /** By item: the fields of its result line. */
  files: Map<string, Pick<ResultLine, "files" | "verified">>;
  /** By item that lacks images. */
  problems: Map<string, ImgbatchError>;
  /** The error that ended the fetching of the whole batch; null if every image was tried. */
  failure: ImgbatchError | null;
  /** Items whose files were not here before. */
  fetchedCount: number;
}

/** A job under way. */
interface Fetching extends FetchJob, Pick<FetchedImages, "problems"> {
  /** By item, then by the index of the image: its file on disk, checked. */
  here: Map<string, Map<number, CheckedFile>>;
  /** The manifest's facts about the images of each item, in their order. Bytes from elsewhere must match them. */
  stated: Awaited<ReturnType<typeof takeImages>>["stated"];
}

function reportSaved({ batch, reporter }: FetchJob, custom_id: string, { file }: CheckedFile): void {
  const { path, bytes, sha256 } = file;
  reporter.event?.({ event: "file_saved", batch_id: batch.id, custom_id, path, bytes, sha256 });
}

/** Returns the files of an item that are on disk as the earlier results say. */
async function intactFiles(job: FetchJob, item: BatchItem): Promise<Map<number, CheckedFile>> {
  const line = job.earlier.get(item.customId);
  const intact = new Map<number, CheckedFile>();
  for (let index = 0; index < item.imageCount; index++) {
    job.signal?.throwIfAborted();
    const file = fileAt(line, index);
    if (file !== undefined && (await isIntact(job.dir, file)))
      intact.set(index, { file, verified: line?.verified ?? null });
  }
  return intact;
}

/** The file of an item's image in earlier results. */
function fileAt(line: ResultLine | undefined, index: number): ResultFile | undefined {
  return line?.files.find((file, position) => (file.image_index ?? position) === index);
}

/** Returns the path of an image: its earlier path, else a new one, named by its stem and type. */
function pathFor(job: FetchJob, customId: string, index: number, type: ImageMimeType): string {
  const known = fileAt(job.earlier.get(customId), index)?.path;
  return known !== undefined && isImagePath(known) ? known : job.pathFor(customId, index, type);
}

/** Returns the fields of a result line for the files of an item. `image_index` is written only where images are missing. */
function resultFiles(
  { imageCount }: BatchItem,
  files: ReadonlyMap<number, CheckedFile> = new Map(),
): Pick<ResultLine, "files" | "verified"> {
  if (files.size === 0) return { files: [] };
  const checks = [...files.values()].map(({ verified }) => verified);
  const verified = checks.includes(null) ? null : checks.includes("crc32") ? "crc32" : "sha256";
  const isWhole = files.size === imageCount;
  const named = [...files]
    .sort(([a], [b]) => a - b)
    .map(([index, { file }]) => {
      const { image_index: _, ...rest } = file;
      return isWhole ? rest : { ...rest, image_index: index };
    });
  return { files: named, verified };
}

/** Up to this many items are fetched one by one when the others are intact. More come as a ZIP. */
const FEW = 8;
/** Another way may bring the image of such an error. */
const DOUBTFUL: readonly ErrorCode[] = ["VERIFY_FAILED", "NOT_FOUND"];

/**
 * Brings the images of a batch into the directory of its run: in a ZIP that stays there if `keepZip` and the service has a
 * whole one, else as files. Throws errors that concern the whole run.
 */
export async function fetchImages(job: FetchJob, options: { keepZip: boolean }): Promise<FetchedImages> {
  const kept = options.keepZip ? await keepZip(job) : null;
  return kept ?? fetchFiles(job, { withoutZip: options.keepZip });
}

/**
 * Fetches the missing and damaged images of a batch, and no others: as a ZIP or one by one, and what came wrong the other
 * way too. `withoutZip`: the service has no ZIP of the batch.
 */
async function fetchFiles(job: FetchJob, { withoutZip }: { withoutZip: boolean }): Promise<FetchedImages> {
  const work: Fetching = {
    ...job,
    here: new Map(),
    problems: new Map(),
    stated: new Map(),
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
  const files = new Map(
    job.wanted.map((item) => [item.customId, resultFiles(item, here.get(item.customId))]),
  );
  return { files, problems, failure, fetchedCount: missing.length - lacking.length };
}

type Way = "zip" | "kept" | "single";

const WAYS: Record<Way, (work: Fetching, items: readonly BatchItem[]) => Promise<void>> = {
  zip: unpackZip,
  kept: (work, items) => unpackPresent(work, items, join(work.dir, zipName(work.batch.id))),
  single: fetchSingly,
};
const TRYING: Record<Way, string> = { zip: "the ZIP", kept: "the ZIP", single: "the images one by one" };

function waysFor(
  { batch, gone, earlier }: FetchJob,
  missing: readonly BatchItem[],
  withoutZip: boolean,
): Way[] {
  if (gone !== null) return ["kept"];
  if (withoutZip || !batch.isDone) return ["single"];
  // An image that was wrong before must be compared with the manifest, which only the ZIP has.
  const isRepairable = ({ customId }: BatchItem) => {
    const line = earlier.get(customId);
    return line !== undefined && line.error?.code !== "VERIFY_FAILED";
  };
  const isRepair = missing.length <= FEW && missing.every(isRepairable);
  return isRepair ? ["single", "zip"] : ["zip", "single"];
}

const MOST_UNANSWERED = 2;

/**
 * Fetches the missing images of some items one by one. A problem with one image does not stop the others. Throws errors
 * that concern all images, and the first error of two items in a row without an answer, or of all items: the service counts
 * as unreachable then.
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
    if (unanswered.length >= Math.min(MOST_UNANSWERED, items.length)) throw unanswered[0];
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
  const { earlier, http, batch, signal } = work;
  const options = { signal, isEarly: !batch.isDone };
  const { data, sha256 } = await getContent(http, batch.id, customId, index, options);
  const type = imageType(data, customId);
  const path = pathFor(work, customId, index, type);
  const known = fileAt(earlier.get(customId), index);
  const stated = work.stated.get(customId)?.[index];
  const said = sha256 ?? stated?.sha256 ?? null;
  const bytes = known === undefined && sha256 === null ? (stated?.bytes ?? null) : null;
  const expected = { sha256: known?.sha256 ?? said, bytes, crc32: null };
  const { file } = await placeImage(work, { bytes: [data], path, expected, known });
  // Matching the earlier hash proves nothing new: keep the earlier `verified`.
  const before = known === undefined ? null : (earlier.get(customId)?.verified ?? null);
  return { file: { path, ...file }, verified: said === null ? before : "sha256" };
}

/**
 * Unpacks the images of some items from the ZIP of their batch. One that a crash left is used; else it is fetched, and
 * removed afterwards. An item with a missing or wrong image has a problem. Throws errors that concern the whole ZIP.
 */
async function unpackZip(work: Fetching, wanted: readonly BatchItem[]): Promise<void> {
  const { batch, here } = work;
  const target = join(work.dir, `${PASSING_PREFIX}${zipName(batch.id)}`);
  await unpackPresent(work, wanted, target);
  const missing = wanted.filter(({ customId, imageCount }) => (here.get(customId)?.size ?? 0) < imageCount);
  try {
    if (missing.length === 0) return;
    await downloadZip({ ...work, target });
    await unpackAll(work, missing, target);
  } finally {
    // One that could not be used would not help the next attempt either.
    await removeFile(target);
  }
}

/** Unpacks images from a ZIP that was kept, or that a crash left, if it is here and can be used. */
async function unpackPresent(work: Fetching, wanted: readonly BatchItem[], path: string): Promise<void> {
  if (existsSync(path)) await unpackAll(work, wanted, path).catch(orNull(work.signal));
}

async function unpackAll(work: Fetching, wanted: readonly BatchItem[], path: string): Promise<void> {
  const { here, problems } = work;
  const ids = new Set(wanted.map((item) => item.customId));
  const take = async (image: ZippedImage): Promise<(CheckedFile & { index: number }) | null> => {
    if (!ids.has(image.customId)) return null;
    return { ...(await unpack(work, image)), index: image.index };
  };
  const { taken, wrong, stated } = await takeImages(path, work.items, take, work.signal);
  work.stated = stated;
  for (const { customId, imageCount } of wanted) {
    const found = (taken.get(customId) ?? []).filter((image) => image !== null);
    const files = here.get(customId) ?? new Map();
    // When one image of an item is wrong, its others are not trusted.
    if (!wrong.has(customId)) for (const { index, ...file } of found) files.set(index, file);
    here.set(customId, files);
    const message = `The ZIP lacks an image of ${JSON.stringify(customId)}.`;
    const absent = new ImgbatchError("VERIFY_FAILED", message);
    const problem = wrong.get(customId) ?? (files.size < imageCount ? absent : undefined);
    if (problem === undefined) problems.delete(customId);
    else if (!problems.has(customId)) problems.set(customId, problem);
  }
}

/** Unpacks an image. A file that is already correct is not written again. */
async function unpack(
  job: FetchJob,
  { customId, index, entry, sha256, bytes }: ZippedImage,
): Promise<CheckedFile> {
  const expected = { sha256, bytes, crc32: entry.crc32 };
  const type = imageType(await entry.start(HEAD_BYTES), entry.name);
  const path = pathFor(job, customId, index, type);
  const target = join(job.dir, path);
  const isThere = await inspect(regularFilePieces(target), expected, path).catch(() => null);
  const known = fileAt(job.earlier.get(customId), index);
  const { file, verified } =
    isThere ?? (await placeImage(job, { bytes: await entry.read(), path, expected, known }));
  return { file: { path, ...file }, verified };
}

interface PlacedImage {
  bytes: Parameters<typeof writeVerified>[0];
  path: string;
  expected: Parameters<typeof writeVerified>[2];
  known: ResultFile | undefined;
}

/**
 * Saves and verifies an image as `path` of the run. A picture that a person has put in the place of `known`, the file of an
 * earlier command, goes to `versions/`.
 */
export function placeImage(
  { dir, reporter }: Pick<FetchJob, "dir" | "reporter">,
  { bytes, path, expected, known }: PlacedImage,
): ReturnType<typeof writeVerified> {
  const makeRoom = async () => {
    if (path === known?.path) await moveChangedAway(dir, path, reporter);
  };
  return writeVerified(bytes, join(dir, path), expected, path, makeRoom);
}

/** This many bytes show the type of an image. */
const HEAD_BYTES = 12;

function imageType(head: Buffer, name: string): ImageMimeType {
  const type = sniffImageType(head);
  if (type !== null) return type;
  throw new ImgbatchError("VERIFY_FAILED", `The bytes of ${name} are not a PNG, JPEG or WebP image.`);
}

/**
 * Saves the ZIP of a batch in the run's directory, where its images stay, or checks the one that is there. Null if the
 * service has no whole ZIP: then the images have to come one by one. Throws other errors.
 */
async function keepZip(job: FetchJob): Promise<FetchedImages | null> {
  const { dir, batch, gone, signal, reporter } = job;
  const wanted = job.wanted.filter(hasImages);
  const name = zipName(batch.id);
  const target = join(dir, name);
  const there = existsSync(target)
    ? await checkZip(target, wanted, { name, signal }).catch(orNull(signal))
    : null;
  if (wanted.length === 0 || (there === null && gone !== null)) return null;
  let saved: { images: Map<string, CheckedFile[]>; wasThere: boolean };
  try {
    const zip = { ...job, target };
    saved = there ? { images: there, wasThere: true } : await saveZip(zip, { name, mayReplace: true });
  } catch (error) {
    signal?.throwIfAborted();
    if (!isZipFallback(error)) throw error;
    reporter.note(`${error.message} The images come one by one instead of the ZIP.`);
    return null;
  }
  const { images, wasThere } = saved;
  const files: FetchedImages["files"] = new Map();
  for (const item of wanted) {
    const checked = images.get(item.customId) ?? [];
    files.set(item.customId, resultFiles(item, new Map(checked.entries())));
    if (!wasThere) for (const file of checked) reportSaved(job, item.customId, file);
  }
  return { files, problems: new Map(), failure: null, fetchedCount: wasThere ? 0 : wanted.length };
}

/** For a ZIP that is here, kept or left by a crash, and may be unusable. */
function orNull(signal: AbortSignal | undefined): (error: unknown) => null {
  return (error) => {
    signal?.throwIfAborted();
    if (error instanceof ImgbatchError && error.code === "VERIFY_FAILED") return null;
    throw error;
  };
}

const ZIP_FALLBACK: readonly ErrorCode[] = [
  "VERIFY_FAILED",
  "BATCH_IMAGE_RESULT_MISSING",
  "NOT_FOUND",
  "BAD_RESPONSE",
  "INTERNAL_ERROR",
];

/**
 * Whether the images may be fetched one by one after this error of their ZIP: it is refused (too large, an image lost, no
 * such path), breaks off, or is unusable. An overloaded service is not asked for more.
 */
function isZipFallback(error: unknown): error is ImgbatchError {
  if (!(error instanceof ImgbatchError)) return false;
  const { code } = error;
  // A service that finds a damaged image while sending can only break off.
  if (code === "NETWORK") return true;
  const isLoad = mayPass(error) || isOutOfCapacity(error);
  return !isLoad && (ZIP_FALLBACK.includes(code) || errorEntry(code).exit === "usage");
}
