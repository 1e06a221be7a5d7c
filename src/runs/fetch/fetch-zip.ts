import { createReadStream, existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { type Batch, type BatchItem, hasImages } from "../../client/answers.ts";
import { downloadFile } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { isOutOfCapacity, mayPass } from "../../http/retries.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatSize } from "../../kernel/text.ts";
import { PASSING_PREFIX } from "../directory/claim.ts";
import {
  type CheckedFile,
  inspect,
  moveInto,
  requireReplaceable,
  writeVerified,
} from "../directory/run-files.ts";
import type { RunReporter } from "../directory/run-service.ts";
import { type FetchedImages, type Fetching, type FetchJob, pathFor, reportSaved } from "./fetch-job.ts";
import { openZip, readContents, readStart, type ZipContents, type ZippedImage } from "./zip.ts";

interface ZipJob {
  http: Http;
  batch: Batch;
  items: readonly BatchItem[];
  /** The path of the ZIP. */
  target: string;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
}

/** Returns the file name of a batch's ZIP: its id, made safe if needed. */
export function zipName(batchId: string): string {
  if (/^[A-Za-z0-9_-]{1,100}$/.test(batchId)) return `${batchId}.zip`;
  return `${batchId.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60)}-${sha256Hex(batchId).slice(0, 12)}.zip`;
}

/** Downloads the ZIP of a batch, or resumes the download. Nothing in it is checked yet. Returns its size in bytes. */
async function downloadZip({ http, batch, items, target, signal, reporter }: ZipJob): Promise<number> {
  // A batch larger than the usual limit must be asked for in full.
  const query = items.length > DEFAULT_LIMITS.zipItems ? `?max_items=${items.length}` : "";
  const { bytes } = await downloadFile({
    http,
    path: routes.download(batch.id) + query,
    target,
    signal,
    onProgress: (done, total) => {
      reporter.progress(`downloading ${formatSize(done)}${total === null ? "" : ` of ${formatSize(total)}`}`);
    },
  });
  return bytes;
}

/** Takes one image out of a ZIP. */
type TakeImage<T> = (image: ZippedImage) => Promise<T>;

/**
 * Takes the images of a ZIP one by one, in the order of each item's images. A wrong image (`VERIFY_FAILED`) does not stop
 * the others: `wrong` has the first error of each such item. `stated` holds the facts of the manifest.
 */
export async function takeImages<T>(
  path: string,
  items: readonly BatchItem[],
  take: TakeImage<T>,
  signal?: AbortSignal,
): Promise<{ taken: Map<string, T[]>; wrong: Map<string, ImgbatchError>; stated: ZipContents["stated"] }> {
  const zip = await openZip(path, signal);
  try {
    const taken = new Map<string, T[]>();
    const wrong = new Map<string, ImgbatchError>();
    const { images, stated } = await readContents(zip, items);
    for (const image of images) {
      signal?.throwIfAborted();
      const { customId } = image;
      try {
        const found = await take(image);
        const before = taken.get(customId);
        if (before === undefined) taken.set(customId, [found]);
        else before.push(found);
      } catch (error) {
        const isWrong = error instanceof ImgbatchError && error.code === "VERIFY_FAILED";
        if (!isWrong || signal?.aborted) throw error;
        if (!wrong.has(customId)) wrong.set(customId, error);
      }
    }
    return { taken, wrong, stated };
  } catch (error) {
    // An abort also cuts off an image; the abort is the reason to report.
    signal?.throwIfAborted();
    throw error;
  } finally {
    zip.close();
  }
}

/** Checks an image without unpacking it; `zip` is how the result names the ZIP. */
export async function checkInPlace(zip: string, { entry, sha256, bytes }: ZippedImage): Promise<CheckedFile> {
  const expected = { sha256, bytes, crc32: entry.crc32 };
  const { file, verified } = await inspect(await entry.read(), expected, entry.name);
  return { file: { path: zip, entry: entry.name, ...file }, verified };
}

/** A ZIP that was saved, or that existed already. */
interface SavedZip {
  /** The images of each item, in their order. */
  images: Map<string, CheckedFile[]>;
  bytes: number;
  /** Whether the same file existed before. */
  wasThere: boolean;
}

/**
 * Saves the ZIP of a batch after checking every image in it, and that none is missing. A ZIP that fails is removed. An
 * existing file at the target stays until the checks are done; then a different one is replaced if `mayReplace`, else
 * `FILE_EXISTS` is thrown. The images are named as parts of `name`.
 */
export async function saveZip(
  job: ZipJob,
  { name, mayReplace }: { name: string; mayReplace: boolean },
): Promise<SavedZip> {
  const { target, items, signal } = job;
  await requireReplaceable(target);
  const unchecked = `${target}.unchecked`;
  const bytes = await downloadZip({ ...job, target: unchecked });
  try {
    const images = await checkZip(unchecked, items, { name, signal });
    const wasThere = await moveInto(unchecked, target, mayReplace);
    return { images, bytes, wasThere };
  } catch (error) {
    await dropFile(unchecked);
    throw error;
  }
}

/** Returns the checked images of a ZIP. Throws `VERIFY_FAILED` if it lacks an image that an item has, or holds a wrong one. */
async function checkZip(
  path: string,
  items: readonly BatchItem[],
  { name, signal }: { name: string; signal: AbortSignal | undefined },
): Promise<Map<string, CheckedFile[]>> {
  const { taken, wrong } = await takeImages(path, items, (image) => checkInPlace(name, image), signal);
  const absent = items.filter(
    (item) => hasImages(item) && (taken.get(item.customId)?.length ?? 0) < item.imageCount,
  );
  const problems = [
    ...[...wrong.values()].map((error) => error.message),
    ...absent
      .filter(({ customId }) => !wrong.has(customId))
      .map(({ customId }) => `the ZIP lacks an image of ${JSON.stringify(customId)}`),
  ];
  const [only, ...more] = problems;
  if (only === undefined) return taken;
  if (more.length === 0) throw new ImgbatchError("VERIFY_FAILED", only);
  const message = `${problems.length} downloaded files are not what they should be.`;
  throw new ImgbatchError("VERIFY_FAILED", message, { details: problems });
}

/**
 * Saves the ZIP of a batch in the run's directory, where its images stay, or checks the one that is there. Null if the
 * service has no whole ZIP: then the images have to come one by one. Throws other errors.
 */
export async function keepZip(job: FetchJob): Promise<FetchedImages | null> {
  const { http, dir, batch, items, gone, signal, reporter } = job;
  const wanted = job.wanted.filter(hasImages);
  const name = zipName(batch.id);
  const target = join(dir, name);
  const there = existsSync(target)
    ? await checkZip(target, wanted, { name, signal }).catch(orNull(signal))
    : null;
  if (wanted.length === 0 || (there === null && gone !== null)) return null;
  let saved: { images: Map<string, CheckedFile[]>; wasThere: boolean };
  try {
    const zip = { http, batch, items, target, signal, reporter };
    saved = there ? { images: there, wasThere: true } : await saveZip(zip, { name, mayReplace: true });
  } catch (error) {
    signal?.throwIfAborted();
    if (!isZipFallback(error)) throw error;
    reporter.note(`${error.message} The images come one by one instead of the ZIP.`);
    return null;
  }
  const { images, wasThere } = saved;
  const here: FetchedImages["here"] = new Map();
  for (const { customId } of wanted) {
    const files = images.get(customId) ?? [];
    here.set(customId, new Map(files.entries()));
    if (!wasThere) for (const file of files) reportSaved(job, customId, file);
  }
  return { here, problems: new Map(), failure: null, fetchedCount: wasThere ? 0 : wanted.length };
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
export function isZipFallback(error: unknown): error is ImgbatchError {
  if (!(error instanceof ImgbatchError)) return false;
  const { code } = error;
  // A service that finds a damaged image while sending can only break off.
  if (code === "NETWORK") return true;
  const isLoad = mayPass(error) || isOutOfCapacity(error);
  return !isLoad && (ZIP_FALLBACK.includes(code) || errorEntry(code).exit === "usage");
}

/**
 * Unpacks the images of some items from the ZIP of their batch. One that a crash left is used; else it is fetched, and
 * removed afterwards. An item with a missing or wrong image has a problem. Throws errors that concern the whole ZIP.
 */
export async function unpackZip(work: Fetching, wanted: readonly BatchItem[]): Promise<void> {
  const { http, batch, items, here, signal, reporter } = work;
  const target = join(work.dir, `${PASSING_PREFIX}${zipName(batch.id)}`);
  if (existsSync(target)) await unpackAll(work, wanted, target).catch(orNull(signal));
  const missing = wanted.filter(({ customId, imageCount }) => (here.get(customId)?.size ?? 0) < imageCount);
  try {
    if (missing.length === 0) return;
    await downloadZip({ http, batch, items, target, signal, reporter });
    await unpackAll(work, missing, target);
  } finally {
    // One that could not be used would not help the next attempt either.
    await dropFile(target);
  }
}

/** Unpacks images from the ZIP that was kept, if it is here and can be used. */
export async function unpackKeptZip(work: Fetching, wanted: readonly BatchItem[]): Promise<void> {
  const path = join(work.dir, zipName(work.batch.id));
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
    const problem = wrong.get(customId) ?? (files.size < imageCount ? absent(customId) : undefined);
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
  const type = sniffImageType(await readStart(entry, HEAD_BYTES));
  if (type === null)
    throw new ImgbatchError("VERIFY_FAILED", `${entry.name} is not a PNG, JPEG or WebP image.`);
  const path = pathFor(job, customId, index, type);
  const target = join(job.dir, path);
  const isThere = await inspect(createReadStream(target), expected, path).catch(() => null);
  const { file, verified } = isThere ?? (await writeVerified(await entry.read(), target, expected, path));
  return { file: { path, ...file }, verified };
}

/** This many bytes show the type of an image. */
const HEAD_BYTES = 12;

function absent(customId: string): ImgbatchError {
  return new ImgbatchError("VERIFY_FAILED", `The ZIP lacks an image of ${JSON.stringify(customId)}.`);
}

async function dropFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}
