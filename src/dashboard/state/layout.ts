import type { DashboardState } from "./state.ts";

/** Heights of the parts of the main screen, in lines; together never more than the window has. */
export interface Layout {
  header: number;
  /** Lines of batches, without the line of column titles. */
  batchLines: number;
  /** Lines of requests and of the log, without their titles; 0 leaves the panel out. */
  requestLines: number;
  logLines: number;
  /** Whether requests and log stand side by side. */
  isWide: boolean;
}

const WIDE_COLUMNS = 130;
/** Header, its rule, list title, queue with its rule, and the line of keys. */
const FIXED_LINES = 7;

/** Shares the window: the batches get what is left, and never less than three lines. */
export function layoutOf({
  size,
  log,
  abilities,
}: Pick<DashboardState, "size" | "log" | "abilities">): Layout {
  const free = Math.max(0, size.rows - FIXED_LINES);
  const isWide = size.columns >= WIDE_COLUMNS;
  if (free < 10 || !abilities.activity)
    return { header: 2, batchLines: free, requestLines: 0, logLines: 0, isWide };
  const lower = Math.min(16, Math.floor(free * 0.4));
  if (isWide) {
    const lines = lower - 1;
    return { header: 2, batchLines: free - lower, requestLines: lines, logLines: lines, isWide };
  }
  const logLines = Math.max(1, Math.min(3, log.length, Math.floor(lower / 3)));
  const requestLines = Math.max(1, lower - 2 - logLines);
  return { header: 2, batchLines: free - requestLines - logLines - 2, requestLines, logLines, isWide };
}

/** Lines for items on the detail screen: the rest is title, facts, history, titles and keys. */
export function detailLines({ size }: Pick<DashboardState, "size">): number {
  return Math.max(1, size.rows - 9);
}
