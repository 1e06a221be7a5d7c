import type {
  BatchDetail,
  BatchRow,
  LogLine,
  Picture,
  ProblemLevel,
  RequestLine,
  ServiceFacts,
  Vitals,
} from "../model.ts";
import type { Abilities, Intent } from "../source.ts";

export const SORTS = ["newest", "status", "progress", "name", "cost"] as const;
export type Sort = (typeof SORTS)[number];

/** What waits for a yes or no. */
export interface Question {
  kind: "cancel" | "delete" | "quit";
  batchId: string | null;
}

/** What the person sees and has chosen. */
export interface ViewState {
  screen: "batches" | "detail" | "picture" | "help";
  /** The batch under the cursor; null is the first line, whichever batch that is. */
  selectedId: string | null;
  /** First shown line of the batch list. */
  top: number;
  /** The item under the cursor of the detail screen, and its first shown line. */
  selectedItem: number;
  itemTop: number;
  filter: string;
  isTypingFilter: boolean;
  sort: Sort;
  logLevel: ProblemLevel;
  question: Question | null;
  message: { text: string; isError: boolean; atMs: number } | null;
}

/** All that the live view knows. Only `reduce` makes a new one. */
export interface DashboardState {
  nowMs: number;
  size: { columns: number; rows: number };
  abilities: Abilities;
  service: ServiceFacts | null;
  vitals: Vitals;
  batches: ReadonlyMap<string, BatchRow>;
  /** Finished images by second, the newest last; `rateAtMs` is the second of the last entry. */
  imagesBySecond: readonly number[];
  rateAtMs: number;
  requests: readonly RequestLine[];
  log: readonly LogLine[];
  detail: BatchDetail | null;
  picture: Picture | null;
  view: ViewState;
}

/** What a key makes of the state, and what the person asks the service for with it. */
export interface Pressed {
  state: DashboardState;
  intent: Intent | null;
}

export function initialState(start: {
  nowMs: number;
  columns: number;
  rows: number;
  abilities: Abilities;
}): DashboardState {
  return {
    nowMs: start.nowMs,
    size: { columns: start.columns, rows: start.rows },
    abilities: start.abilities,
    service: null,
    vitals: {
      balanceMicroUsd: null,
      heldMicroUsd: null,
      freeDiskBytes: null,
      waitingItems: 0,
      runningItems: 0,
      places: null,
      isPaused: false,
    },
    batches: new Map(),
    imagesBySecond: [],
    rateAtMs: Math.floor(start.nowMs / 1000) * 1000,
    requests: [],
    log: [],
    detail: null,
    picture: null,
    view: {
      screen: "batches",
      selectedId: null,
      top: 0,
      selectedItem: 0,
      itemTop: 0,
      filter: "",
      isTypingFilter: false,
      sort: "newest",
      logLevel: "warn",
      question: null,
      message: null,
    },
  };
}
