import { join } from "node:path";
import type { Batch, BatchItem } from "../../client/batch.ts";
import { getContent } from "../../client/download.ts";
import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { type ImageMimeType, sniffImageType } from "../../contract/image-formats.ts";
import type { Http } from "../../http/http.ts";
import { isOutOfCapacity, mayPass } from "../../http/retries.ts";
import type { DiskNames } from "../directory/names.ts";
import type { ResultLine } from "../directory/results.ts";
import {
  isImagePath,
  isIntact,
  type ResultFile,
  type Verified,
  writeVerified,
} from "../directory/run-files.ts";
import type { RunReporter } from "../reporter.ts";
import type { ZipContents } from "./zip.ts";

/** What an error of fetching concerns: one image, all images of its batch, or the whole run. */
type ErrorScope = "image" | "batch" | "run";

const BATCH_CODES: readonly ErrorCode[] = ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETED"];
const RUN_EXITS: readonly ExitName[] = ["auth", "money"];

/**
 * Returns what an error concerns. After a full disk, a wrong key, an interruption or a fault of this program, fetching more
 * makes no sense at all; after deleted outputs or a lack of capacity, only other batches are worth a try.
 */
export function scopeOf(error: unknown, signal: AbortSignal | undefined): ErrorScope {
  if (signal?.aborted || !(error instanceof ImgbatchError)) return "run";
  if (error.code === "SAVE_FAILED" || RUN_EXITS.includes(errorEntry(error.code).exit)) return "run";
  return BATCH_CODES.includes(error.code) || isOutOfCapacity(error) ? "batch" : "image";
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
  /** The id of an image in the run, by the id that was sent, where these differ. */
  ids: ReadonlyMap<string, string>;
  /** The results of an earlier run of this batch in this directory, by item. */
  earlier: ReadonlyMap<string, ResultLine>;
  /** The manifest's facts about the images of each item, in their order. Bytes from elsewhere must match them. */
  stated?: ZipContents["stated"] | undefined;
  names: DiskNames;
  /** Returns the name of an image of the run, without number and extension. Default: its id. */
  stemOf?: (id: string) => string;
  /** Keep the ZIP instead of unpacking it. */
  keepZip: boolean;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
}

/** Files of an item, on disk and checked. */
export interface Fetched {
  files: ResultFile[];
  verified: Verified;
}

/** The outcome for some items. An item with a problem lacks images; the images that it does have are here. */
export interface Fetches {
  byItem: Map<string, Fetched>;
  problems: Map<string, ImgbatchError>;
  /** The manifest's facts, where there was one. */
  stated?: ZipContents["stated"] | undefined;
}

/** Returns the weakest check among the files of an item. */
export function weakest(checks: readonly Verified[]): Verified {
  if (checks.includes(null)) return null;
  return checks.includes("crc32") ? "crc32" : "sha256";
}

/** The file of an item's image in earlier results. */
export function fileAt(line: ResultLine | undefined, index: number): ResultFile | undefined {
  return line?.files.find((file, position) => (file.image_index ?? position) === index);
}

/** Returns the path of an image: its earlier path, else a new one below `images/`, named by its stem and type. */
export function pathFor(job: FetchJob, customId: string, index: number, type: ImageMimeType): string {
  const known = fileAt(job.earlier.get(customId), index)?.path;
  if (known !== undefined && isImagePath(known)) return known;
  const id = job.ids.get(customId) ?? customId;
  return job.names.takeImage(id, index, type, job.stemOf?.(id));
}

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
      if (!(error instanceof ImgbatchError) || scopeOf(error, job.signal) !== "image") throw error;
      problem ??= error;
      if (mayPass(error)) break;
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
