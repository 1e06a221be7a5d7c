import type { Http } from "../client/http.ts";
import type { Batch } from "../client/read-batch.ts";
import type { BatchItem } from "../client/read-lists.ts";
import type { DiskNames } from "./disk-names.ts";
import type { ResultLine } from "./results.ts";
import type { RunVoice } from "./run-voice.ts";

/** The images of one batch, to be on disk and verified. */
export interface FetchJob {
  http: Http;
  dir: string;
  batch: Batch;
  items: readonly BatchItem[];
  /** What an earlier run in this directory got of this batch, by item. */
  earlier: ReadonlyMap<string, ResultLine>;
  names: DiskNames;
  /** Keep the ZIP instead of unpacking it. */
  keepZip: boolean;
  signal?: AbortSignal | undefined;
  voice: RunVoice;
}

/** Files of an item, on disk and checked. */
export type Fetched = Required<Pick<ResultLine, "files" | "verified">>;
