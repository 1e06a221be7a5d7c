import { createReadStream, existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Batch, BatchItem } from "../../client/batch.ts";
import { downloadFile } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatSize } from "../../kernel/text.ts";
import { PASSING_PREFIX } from "../directory/claim.ts";
import {
  inspect,
  moveInto,
  type ResultFile,
  requireReplaceable,
  type Verified,
  writeVerified,
} from "../directory/run-files.ts";
import type { RunReporter } from "../reporter.ts";
import { type Fetched, type Fetches, type FetchJob, pathFor, weakest } from "./fetch-by-content.ts";
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
async function fetchZip({ http, batch, items, target, signal, reporter }: ZipJob): Promise<number> {
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

/** An image inside a kept ZIP. */
interface ZippedFile {
  file: ResultFile;
  verified: Verified;
}

/** Checks an image without unpacking it; `zip` is how the result names the ZIP. */
export async function checkInPlace(zip: string, { entry, sha256, bytes }: ZippedImage): Promise<ZippedFile> {
  const { file, verified } = await inspect(
    await entry.read(),
    { sha256, bytes, crc32: entry.crc32 },
    entry.name,
  );
  return { file: { path: zip, entry: entry.name, ...file }, verified };
}

/** A ZIP that was saved, or that existed already. */
interface SavedZip {
  images: ResultFile[];
  bytes: number;
  /** Whether the same file existed before. */
  wasThere: boolean;
}

/**
 * Saves the ZIP of a batch after checking every image in it, and that none is missing. A ZIP that fails is removed. An
 * existing file at the target stays until the checks are done; then a different one is replaced if `mayReplace`, else
 * `FILE_EXISTS` is thrown.
 */
export async function saveZip(job: ZipJob, { mayReplace }: { mayReplace: boolean }): Promise<SavedZip> {
  const { target, items, signal } = job;
  await requireReplaceable(target);
  const unchecked = `${target}.unchecked`;
  const bytes = await fetchZip({ ...job, target: unchecked });
  try {
    const { taken, wrong } = await takeImages(
      unchecked,
      items,
      (image) => checkInPlace(target, image),
      signal,
    );
    const absent = items.filter(
      (item) => item.status === "success" && (taken.get(item.customId)?.length ?? 0) < item.imageCount,
    );
    const problems = [
      ...[...wrong.values()].map((error) => error.message),
      ...absent
        .filter(({ customId }) => !wrong.has(customId))
        .map(({ customId }) => `the ZIP lacks an image of ${JSON.stringify(customId)}`),
    ];
    if (problems.length > 0) throw wrongFiles(problems);
    const images = [...taken.values()].flat().map(({ file }) => file);
    const wasThere = await moveInto(unchecked, target, mayReplace);
    return { images, bytes, wasThere };
  } catch (error) {
    await saving(target, () => rm(unchecked, { force: true }));
    throw error;
  }
}

function wrongFiles(wrong: readonly string[]): ImgbatchError {
  if (wrong.length === 1) return new ImgbatchError("VERIFY_FAILED", wrong[0]);
  const message = `${wrong.length} downloaded files are not what they should be.`;
  return new ImgbatchError("VERIFY_FAILED", message, { details: wrong });
}

/**
 * Fetches the ZIP of a batch and unpacks the wanted items from it, or checks them in place when the ZIP is kept. An
 * item with a missing or wrong image has a problem. Throws errors that concern the whole ZIP.
 */
export async function fetchByZip(job: FetchJob, wanted: readonly BatchItem[]): Promise<Fetches> {
  const { http, batch, items, signal, reporter } = job;
  const name = nameOf(job);
  const target = join(job.dir, name);
  const zip: ZipJob = { http, batch, items, target, signal, reporter };
  const kept = await takeThere(job, wanted);
  if (kept !== null && kept.problems.size === 0) {
    if (!job.keepZip) await dropFile(target);
    return kept;
  }
  await fetchZip(zip);
  try {
    const fetches = await takeAll(job, name, wanted);
    if (!job.keepZip) await dropFile(target);
    return fetches;
  } catch (error) {
    // The next attempt could not use this ZIP either.
    await dropFile(target);
    throw error;
  }
}

function nameOf({ keepZip, batch }: FetchJob): string {
  return keepZip ? zipName(batch.id) : `${PASSING_PREFIX}${zipName(batch.id)}`;
}

/** Takes images from a ZIP that is already here. Null when there is none that can be used. */
export async function takeThere(
  job: FetchJob,
  wanted: readonly BatchItem[],
  name = nameOf(job),
): Promise<Fetches | null> {
  return existsSync(join(job.dir, name)) ? takeAll(job, name, wanted).catch(refused(job)) : null;
}

/** An existing ZIP, kept or left by a crash, may be unusable. Any other error is thrown. */
function refused(job: FetchJob): (error: unknown) => null {
  return (error) => {
    job.signal?.throwIfAborted();
    if (error instanceof ImgbatchError && error.code === "VERIFY_FAILED") return null;
    throw error;
  };
}

async function takeAll(job: FetchJob, zip: string, wanted: readonly BatchItem[]): Promise<Fetches> {
  const ids = new Set(wanted.map((item) => item.customId));
  const take = async (image: ZippedImage): Promise<(ZippedFile & { index: number }) | null> => {
    if (!ids.has(image.customId)) return null;
    const found = job.keepZip ? await checkInPlace(zip, image) : await unpack(job, image);
    return { ...found, index: image.index };
  };
  const { taken, wrong, stated } = await takeImages(join(job.dir, zip), job.items, take, job.signal);
  const fetches = { byItem: new Map<string, Fetched>(), problems: new Map<string, ImgbatchError>(), stated };
  for (const { customId, imageCount } of wanted) {
    const found = (taken.get(customId) ?? []).filter((image) => image !== null);
    const problem = wrong.get(customId) ?? (found.length < imageCount ? absent(customId) : undefined);
    if (problem !== undefined) fetches.problems.set(customId, problem);
    // When one image of an item is wrong, its others are not trusted.
    if (found.length === 0 || wrong.has(customId)) continue;
    const files = found.map(({ file, index }) =>
      problem === undefined ? file : { ...file, image_index: index },
    );
    fetches.byItem.set(customId, { files, verified: weakest(found.map(({ verified }) => verified)) });
  }
  return fetches;
}

/** Unpacks an image. A file that is already correct is not written again. */
async function unpack(
  job: FetchJob,
  { customId, index, entry, sha256, bytes }: ZippedImage,
): Promise<ZippedFile> {
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
