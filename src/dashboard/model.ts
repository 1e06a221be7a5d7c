import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

/** Times are milliseconds since 1970; money is whole micro-dollars. Null is what the service does not tell. */

/** A batch as the live view shows it. */
export interface BatchRow {
  id: string;
  name: string;
  status: BatchStatus;
  /** A status of another service that is not known here; shown as it is. */
  statusText?: string;
  model: string;
  provider: string | null;
  itemCount: number;
  successCount: number;
  failCount: number;
  estimatedMicroUsd: number | null;
  /** What the finished images cost; the final amount once the batch is settled. */
  costMicroUsd: number | null;
  createdAtMs: number;
  endedAtMs: number | null;
  /** Why the batch as a whole failed. */
  error: string | null;
}

/** One line of a batch's items. */
export interface ItemRow {
  customId: string;
  status: ItemStatus;
  prompt: string;
  error: string | null;
  sizeBytes: number | null;
  costMicroUsd: number | null;
}

/** One line of a batch's history. */
export interface HistoryRow {
  status: BatchStatus;
  atMs: number;
}

export interface BatchDetail {
  batchId: string;
  items: readonly ItemRow[];
  /** Null where the service does not tell it. */
  history: readonly HistoryRow[] | null;
}

/** An answered request. `key` is the short name of the key, never the key. */
export interface RequestLine {
  atMs: number;
  method: string;
  path: string;
  status: number;
  durationMs: number;
  key: string | null;
}

export const PROBLEM_LEVELS = ["error", "warn", "info", "debug"] as const;
export type ProblemLevel = (typeof PROBLEM_LEVELS)[number];

/** A line of the service's log. */
export interface LogLine {
  atMs: number;
  level: ProblemLevel;
  text: string;
}

/** What does not change while the view is open. */
export interface ServiceFacts {
  url: string;
  /** Null for a service elsewhere. */
  dataDirectory: string | null;
  providers: string | null;
  startedAtMs: number | null;
}

/** Numbers of the whole service. */
export interface Vitals {
  balanceMicroUsd: number | null;
  heldMicroUsd: number | null;
  freeDiskBytes: number | null;
  waitingItems: number;
  runningItems: number;
  /** How many images can be made at once. */
  places: number | null;
  isPaused: boolean;
}

/** An image as pixels for the terminal: three bytes each, row by row. */
export interface Picture {
  batchId: string;
  customId: string;
  widthPx: number;
  heightPx: number;
  rgb: Uint8Array;
  /** What the file itself is: its size, type and bytes. */
  caption: string;
}
