import type { Batch, BatchItem } from "../../client/batch.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { Http } from "../../http/http.ts";
import type { DiskNames } from "../directory/names.ts";
import type { ResultLine } from "../directory/results.ts";
import type { ResultFile, Verified } from "../directory/verified-files.ts";
import { isImagePath } from "../directory/verified-files.ts";
import type { RunReporter } from "../reporter.ts";
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
