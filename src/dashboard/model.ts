import type { Batch } from "../client/answers.ts";
import type { LogLine, RequestLine } from "../contract/activity.ts";
import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

// Times are milliseconds since 1970, and money is whole micro-dollars. A null is a fact that the service does not report.

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
interface TroubleRow {
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

/** One piece of news from a source. It holds nothing about the screen that shows it. */
export type Fact =
  | { type: "service"; facts: ServiceFacts }
  /** Batches that are new or have changed. */
  | { type: "batches"; batches: readonly Batch[] }
  | { type: "batch-gone"; id: string }
  | { type: "images"; count: number; atMs: number }
  | { type: "vitals"; vitals: Partial<Vitals> }
  | { type: "request"; line: RequestLine }
  | { type: "log"; line: LogLine }
  | { type: "detail"; detail: BatchDetail }
  | { type: "picture"; picture: Picture }
  /** The outcome of an action, in words for the person. */
  | { type: "message"; text: string; isError?: boolean };

/** A request of the person to the source. */
export type Intent =
  | { type: "open-detail"; batchId: string }
  | { type: "close-detail" }
  /** Asks for the first image of an item, in at most `box` pixels. */
  | { type: "show-picture"; batchId: string; customId: string; box: { widthPx: number; heightPx: number } }
  | { type: "cancel"; batchId: string }
  | { type: "go-on"; batchId: string }
  | { type: "retry"; batchId: string }
  | { type: "delete-outputs"; batchId: string }
  | { type: "delete-record"; batchId: string }
  | { type: "open-folder"; batchId: string | null }
  /** Signs the person in to the web console, in the browser. */
  | { type: "open-console" }
  | { type: "pause"; isPaused: boolean }
  | { type: "quit" };

/** What a source can do. The dashboard hides everything else. */
export interface Abilities {
  /**
   * The service runs in this process: quitting stops it. Only then can its workers be paused and failed items be made again, and
   * are requests, log lines, and the sizes and costs of images reported.
   */
  ownsService: boolean;
  openConsole: boolean;
}

/** The origin of the dashboard's facts. */
export interface DashboardSource {
  readonly abilities: Abilities;
  /**
   * Starts to report facts, at any rate: the dashboard collects them and shows them a few times a second. Returns the function
   * that stops it.
   */
  start(report: (fact: Fact) => void): () => void;
  /** Carries out an intent and reports the outcome as facts. Throws an error with a message for the person. */
  perform(intent: Intent): Promise<void>;
}
