import type { LogLine, RequestLine } from "../contract/activity.ts";
import type { BatchDetail, BatchRow, Picture, ServiceFacts, Vitals } from "./model.ts";

/** One piece of news from a source. It holds nothing about the screen that shows it. */
export type Fact =
  | { type: "service"; facts: ServiceFacts }
  /** Batches that are new or have changed. */
  | { type: "batches"; rows: readonly BatchRow[] }
  | { type: "batch-gone"; id: string }
  | { type: "images"; count: number; atMs: number }
  | { type: "vitals"; vitals: Partial<Vitals> }
  | { type: "request"; line: RequestLine }
  | { type: "log"; line: LogLine }
  | { type: "detail"; detail: BatchDetail }
  | { type: "picture"; picture: Picture }
  /** The outcome of an action, in words for the person. */
  | { type: "message"; text: string; isError?: boolean };
