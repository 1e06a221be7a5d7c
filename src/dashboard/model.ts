import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

// Times are milliseconds since 1970, and money is whole micro-dollars. A null is a fact that the service does not report.

/** A batch, as a line of the dashboard shows it. */
export interface BatchRow {
  id: string;
  name: string;
  status: BatchStatus;
  /** A status that this version does not know, from another service. It is shown as it came. */
  statusText?: string;
  model: string;
  provider: string | null;
  /** The API that it was made with; null when the service does not say. */
  source: string | null;
  itemCount: number;
  successCount: number;
  failCount: number;
  estimatedMicroUsd: number | null;
  /** The cost of the finished images; once the batch is settled, the final amount. */
  costMicroUsd: number | null;
  /** Its images are drawn, and these amounts are no real money. */
  isPlay: boolean;
  createdAtMs: number;
  endedAtMs: number | null;
  /** The reason why the whole batch failed. */
  error: string | null;
  /** The reason why its items cannot be made now, such as `waiting for google: too many requests`. */
  waiting: string | null;
  /** The jobs at an upstream that make its items, such as `upstream job RUNNING for 12 min`. */
  jobs: string | null;
}

/** One item of a batch. */
export interface ItemRow {
  customId: string;
  status: ItemStatus;
  prompt: string;
  error: string | null;
  sizeBytes: number | null;
  costMicroUsd: number | null;
}

/** A status that a batch reached, and when. */
interface HistoryRow {
  status: BatchStatus;
  atMs: number;
}

export interface BatchDetail {
  batchId: string;
  items: readonly ItemRow[];
  /** The oldest status first. */
  history: readonly HistoryRow[] | null;
}

/** Facts that do not change while the dashboard is open. */
export interface ServiceFacts {
  url: string;
  /** Null for a remote service. */
  dataDirectory: string | null;
  providers: string | null;
  startedAtMs: number | null;
  /** The command that makes a batch here, to type in another terminal. Default: one for the usual data directory. */
  submitCommand?: string;
}

/** A provider that cannot be used now. */
export interface TroubleRow {
  provider: string;
  /** The only model that it concerns, by the upstream's id; null for all. */
  model: string | null;
  message: string;
  /** When it is used again; null when only a change of the configuration helps. */
  untilMs: number | null;
}

/** Numbers of the whole service. */
export interface Vitals {
  /** Only drawings are made, so that the balance is no real money. */
  isPlay: boolean;
  balanceMicroUsd: number | null;
  heldMicroUsd: number | null;
  freeDiskBytes: number | null;
  waitingItems: number;
  runningItems: number;
  /** The most images that the service makes at once. */
  concurrency: number | null;
  isPaused: boolean;
  /** The providers that cannot be used now. */
  troubles: readonly TroubleRow[];
}

/** An image as pixels: red, green and blue in one byte each, row by row. */
export interface Picture {
  batchId: string;
  customId: string;
  widthPx: number;
  heightPx: number;
  rgb: Uint8Array;
  /** The facts of the image file: its size in pixels, its type and its bytes. */
  caption: string;
}
