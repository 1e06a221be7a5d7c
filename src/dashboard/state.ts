import type { Batch } from "../client/answers.ts";
import type { LogLevel, LogLine, RequestLine } from "../contract/activity.ts";
import type { Abilities, BatchDetail, Fact, Picture, ServiceFacts, Vitals } from "./model.ts";

/** A pressed key, by its meaning. `char` is any printable text. */
export type Key =
  | { name: "up" | "down" | "pageUp" | "pageDown" | "home" | "end" | "enter" | "escape" | "backspace" }
  | { name: "interrupt" }
  | { name: "char"; text: string };

/** A change that needs no decision: news from the source, a new window size in cells, or the passing of time. */
export type Change =
  | Fact
  | { type: "resize"; columns: number; rows: number }
  | { type: "tick"; nowMs: number };

/** Everything that can happen to the dashboard. The reducer turns each event into a new state. */
export type DashboardEvent = Change | { type: "key"; key: Key };

export const SORTS = ["newest", "status", "progress", "name", "cost"] as const;
type Sort = (typeof SORTS)[number];

/** An action that waits for a yes or no. */
export interface Question {
  kind: "cancel" | "delete" | "quit";
  batchId: string | null;
}

/** The person's position on the screens, and choices. */
interface ViewState {
  screen: "batches" | "detail" | "picture" | "help";
  /** The batch under the cursor. Null until a key is pressed, and after Home: the cursor is on the newest batch. */
  selectedId: string | null;
  /** The first visible line of the batch list. */
  top: number;
  /** The item under the cursor of the detail screen, as an index. */
  selectedItem: number;
  /** The first visible line of the item list. */
  itemTop: number;
  filter: string;
  isTypingFilter: boolean;
  sort: Sort;
  logLevel: LogLevel;
  question: Question | null;
  message: { text: string; isError: boolean; atMs: number } | null;
}

/** Everything that the dashboard knows. Only the reducer makes a new one. */
export interface DashboardState {
  nowMs: number;
  /** The window, in cells. */
  size: { columns: number; rows: number };
  abilities: Abilities;
  service: ServiceFacts | null;
  vitals: Vitals;
  batches: ReadonlyMap<string, Batch>;
  /** The finished images of each second, the newest last. */
  imagesBySecond: readonly number[];
  /** The beginning of the second that the last entry counts. */
  rateAtMs: number;
  requests: readonly RequestLine[];
  log: readonly LogLine[];
  detail: BatchDetail | null;
  picture: Picture | null;
  view: ViewState;
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
      isPlay: false,
      balanceMicroUsd: null,
      heldMicroUsd: null,
      freeDiskBytes: null,
      waitingItems: 0,
      runningItems: 0,
      concurrency: null,
      isPaused: false,
      troubles: [],
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

/** The seconds over which the images per second are averaged. */
const AVERAGE_SECONDS = 10;

/** Images per second, averaged over the last full seconds. */
export function imagesPerSecond(state: DashboardState): number {
  const full = state.imagesBySecond.slice(0, -1).slice(-AVERAGE_SECONDS);
  if (full.length === 0) return state.imagesBySecond.at(-1) ?? 0;
  return full.reduce((sum, count) => sum + count, 0) / full.length;
}

/** The time that the waiting and running items will take at this rate, in ms; null when it is unknown. */
export function timeLeftMs(state: DashboardState): number | null {
  const left = state.vitals.waitingItems + state.vitals.runningItems;
  const rate = imagesPerSecond(state);
  if (left === 0) return 0;
  return rate > 0 && !state.vitals.isPaused ? (left / rate) * 1000 : null;
}
