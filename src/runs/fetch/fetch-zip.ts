import { rm } from "node:fs/promises";
import { type Batch, type BatchItem, hasImages } from "../../client/answers.ts";
import { downloadFile } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { isOutOfCapacity, mayPass } from "../../http/retries.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatSize } from "../../kernel/text.ts";
import { type CheckedFile, inspect, moveInto, requireReplaceable } from "../directory/run-files.ts";
import type { RunReporter } from "../directory/run-service.ts";
import { openZip, readContents, type ZipContents, type ZippedImage } from "./zip.ts";

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
export async function downloadZip({ http, batch, items, target, signal, reporter }: ZipJob): Promise<number> {
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
export async function checkZip(
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

/** For a ZIP that is here, kept or left by a crash, and may be unusable. */
export function orNull(signal: AbortSignal | undefined): (error: unknown) => null {
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

export async function dropFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}
