import type { Batch, BatchItem } from "../../client/answers.ts";
import { type ErrorCode, errorEntry, ImgbatchError, type ExitName } from "../../contract/errors.ts";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { Http } from "../../http/http.ts";
import { isOutOfCapacity } from "../../http/retries.ts";
import type { ResultLine } from "../directory/results.ts";
import {
  type CheckedFile,
  isImagePath,
  isIntact,
  type ResultFile,
  type Verified,
} from "../directory/run-files.ts";
import type { RunReporter } from "../directory/run-service.ts";
import type { ZipContents } from "./zip.ts";

/** The task of bringing the images of one batch to the disk, verified. */
export interface FetchJob {
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
  /** The service may end with the command that runs it. */
  isBorrowed: boolean;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
}

/** The images of a batch that are here, and why the others are not. */
export interface FetchedImages {
  /** By item, then by the index of the image: its file on disk, checked. */
  here: Map<string, Map<number, CheckedFile>>;
  /** By item that lacks images. */
  problems: Map<string, ImgbatchError>;
  /** The error that ended the fetching of the whole batch; null if every image was tried. */
  failure: ImgbatchError | null;
  /** Items whose files were not here before. */
  fetchedCount: number;
}

/** A job under way. */
export interface Fetching extends FetchJob, Pick<FetchedImages, "here" | "problems"> {
  /** The manifest's facts about the images of each item, in their order. Bytes from elsewhere must match them. */
  stated: ZipContents["stated"];
  /** After this many items in a row without an answer, the service counts as unreachable. */
  mostUnanswered: number;
}

/** What an error of fetching concerns: one image, all images of its batch, or the whole run. */
type ErrorScope = "image" | "batch" | "run";

const BATCH_CODES: readonly ErrorCode[] = ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETED"];
const RUN_EXITS: readonly ExitName[] = ["auth", "money"];

/**
 * Returns what an error concerns. After a full disk, a wrong key, an interruption or a fault of this program, fetching more
 * makes no sense at all, nor from a service that has ended with its command; after deleted outputs or a lack of capacity,
 * only other batches are worth a try.
 */
export function scopeOf(
  error: unknown,
  { signal, isBorrowed }: Pick<FetchJob, "signal" | "isBorrowed">,
): ErrorScope {
  if (signal?.aborted || !(error instanceof ImgbatchError)) return "run";
  if (error.code === "SAVE_FAILED" || RUN_EXITS.includes(errorEntry(error.code).exit)) return "run";
  if (isBorrowed && error.code === "NETWORK") return "run";
  return BATCH_CODES.includes(error.code) || isOutOfCapacity(error) ? "batch" : "image";
}

export function reportSaved({ batch, reporter }: FetchJob, custom_id: string, { file }: CheckedFile): void {
  const { path, bytes, sha256 } = file;
  reporter.event?.({ event: "file_saved", batch_id: batch.id, custom_id, path, bytes, sha256 });
}

/** Returns the files of an item that are on disk as the earlier results say. */
export async function intactFiles(job: FetchJob, item: BatchItem): Promise<Map<number, CheckedFile>> {
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
export function fileAt(line: ResultLine | undefined, index: number): ResultFile | undefined {
  return line?.files.find((file, position) => (file.image_index ?? position) === index);
}

/** Returns the path of an image: its earlier path, else a new one, named by its stem and type. */
export function pathFor(job: FetchJob, customId: string, index: number, type: ImageMimeType): string {
  const known = fileAt(job.earlier.get(customId), index)?.path;
  return known !== undefined && isImagePath(known) ? known : job.pathFor(customId, index, type);
}

/** Returns the fields of a result line for the files of an item. `image_index` is written only where images are missing. */
export function resultFiles(
  { imageCount }: BatchItem,
  files: ReadonlyMap<number, CheckedFile>,
): { files: ResultFile[]; verified?: Verified } {
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
