import type { Batch } from "../../client/wire/read-batch.ts";
import type { BatchItem } from "../../client/wire/read-items.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import type { Http } from "../../http/http.ts";
import type { ResultFile, ResultLine, Verified } from "../directory/results-file.ts";
import type { DiskNames } from "../files/file-names.ts";
import { isImagePath } from "../files/intact-files.ts";
import type { RunReporter } from "../reporter.ts";
import type { ZipContents } from "./zip-images.ts";

/** The images of one batch, to be on disk and verified. */
export interface FetchJob {
  http: Http;
  dir: string;
  batch: Batch;
  /** All of the batch. */
  items: readonly BatchItem[];
  /** Those whose images are to be here. */
  wanted: readonly BatchItem[];
  /** How an image is called in the run, by the id that was sent, where that is another. */
  ids: ReadonlyMap<string, string>;
  /** What an earlier run in this directory got of this batch, by item. */
  earlier: ReadonlyMap<string, ResultLine>;
  /** What a manifest said of the images of an item, in their order; bytes from elsewhere must be the same. */
  told?: ZipContents["told"] | undefined;
  names: DiskNames;
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

/** What came of some items. One that has a problem lacks images; those that it has are here. */
export interface Fetches {
  byItem: Map<string, Fetched>;
  problems: Map<string, ImgbatchError>;
  /** What a manifest said, where there was one. */
  told?: ZipContents["told"] | undefined;
}

/** The weakest of the checks that the files of an item went through. */
export function weakest(checks: readonly Verified[]): Verified {
  if (checks.includes(null)) return null;
  return checks.includes("crc32") ? "crc32" : "sha256";
}

/** The file of an item's image in earlier results. */
export function fileAt(line: ResultLine | undefined, index: number): ResultFile | undefined {
  return line?.files.find((file, position) => (file.image_index ?? position) === index);
}

/** Where an image goes: where it was before, else below `images/`, named by its id and its type. */
export function pathFor(job: FetchJob, customId: string, index: number, type: ImageMimeType): string {
  const known = fileAt(job.earlier.get(customId), index)?.path;
  if (known !== undefined && isImagePath(known)) return known;
  return job.names.takeImage(job.ids.get(customId) ?? customId, index, type);
}
