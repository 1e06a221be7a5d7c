import { rm } from "node:fs/promises";
import type { Batch, BatchItem } from "../../client/batch.ts";
import { downloadFile } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { formatSize } from "../../kernel/text.ts";
import type { ResultFile, Verified } from "../directory/verified-files.ts";
import { inspect, moveInto, requireReplaceable } from "../directory/verified-files.ts";
import type { RunReporter } from "../reporter.ts";
import { openZip, readContents, type ZipContents, type ZippedImage } from "./zip.ts";

export interface ZipJob {
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
export async function fetchZip({ http, batch, items, target, signal, reporter }: ZipJob): Promise<number> {
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
export interface ZippedFile {
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
