import type { BatchDetail, BatchRow, LogLine, Picture, RequestLine, ServiceFacts, Vitals } from "./model.ts";

/** Everything that can happen to the live view. The reducer turns them into its state. */
export type DashboardEvent =
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
  /** Something to tell the person: what an action did, or why it could not. */
  | { type: "message"; text: string; isError?: boolean }
  | { type: "resize"; columns: number; rows: number }
  | { type: "tick"; nowMs: number }
  | { type: "key"; key: Key };

/** An event that no person made. */
export type Fact = Exclude<DashboardEvent, { type: "key" }>;

/** A key that was pressed, by meaning; `char` is any printable text. */
export type Key =
  | { name: "up" | "down" | "pageUp" | "pageDown" | "home" | "end" | "enter" | "escape" | "backspace" }
  | { name: "interrupt" }
  | { name: "char"; text: string };
