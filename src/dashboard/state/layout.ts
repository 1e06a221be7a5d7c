import type { Batch } from "../../client/answers.ts";
import { visibleBatches } from "./batches.ts";
import type { DashboardState } from "./state.ts";

/** The heights of the parts of the main screen, in lines. Together they fit into the window. */
interface Layout {
  header: number;
  /** Lines for batches, without the column titles. */
  batchLines: number;
  /** Lines for requests, without the title; 0 leaves requests and log out. */
  requestLines: number;
  /** Lines for the log, without the title. */
  logLines: number;
  /** Whether requests and log stand side by side. */
  isWide: boolean;
}

const WIDE_COLUMNS = 130;
/** Two lines of header without troubles, the rule below, the column titles, the queue with its rule, and the keys. */
const FIXED_LINES = 7;

/** Shares the window among the parts. The batches get the lines that the others leave. */
export function layoutOf({
  size,
  log,
  abilities,
  vitals,
}: Pick<DashboardState, "size" | "log" | "abilities" | "vitals">): Layout {
  const troubleLines = vitals.troubles.length === 0 ? 0 : 1;
  const header = 2 + troubleLines;
  const free = Math.max(0, size.rows - FIXED_LINES - troubleLines);
  const isWide = size.columns >= WIDE_COLUMNS;
  if (free < 10 || !abilities.ownsService)
    return { header, batchLines: free, requestLines: 0, logLines: 0, isWide };
  const lower = Math.min(16, Math.floor(free * 0.4));
  if (isWide) {
    const lines = lower - 1;
    return { header, batchLines: free - lower, requestLines: lines, logLines: lines, isWide };
  }
  const logLines = Math.max(1, Math.min(3, log.length, Math.floor(lower / 3)));
  const requestLines = Math.max(1, lower - 2 - logLines);
  return { header, batchLines: free - requestLines - logLines - 2, requestLines, logLines, isWide };
}

/** Lines for items on the detail screen, below the facts of the batch and above the keys. */
export function detailLines({ size }: Pick<DashboardState, "size">): number {
  return Math.max(1, size.rows - 9);
}

/** The pixels that the picture screen can show, between its title and the keys. Each cell shows two, one above the other. */
export function pictureBox({ size }: Pick<DashboardState, "size">): { widthPx: number; heightPx: number } {
  return { widthPx: size.columns, heightPx: Math.max(0, size.rows - 2) * 2 };
}

/** Scrolls the lists as little as needed to show the selected lines. */
export function keepInView(state: DashboardState): DashboardState {
  const rows = visibleBatches(state);
  const { view } = state;
  const found = rows.findIndex((row) => row.id === view.selectedId);
  const index = Math.max(0, found);
  const selectedId = found === -1 ? unlisted(state, rows) : view.selectedId;
  const top = scrollTo(view.top, { index, lines: layoutOf(state).batchLines, count: rows.length });
  const itemCount = state.detail?.items.length ?? 0;
  const selectedItem = Math.max(0, Math.min(view.selectedItem, itemCount - 1));
  const item = { index: selectedItem, lines: detailLines(state), count: itemCount };
  const itemTop = scrollTo(view.itemTop, item);
  if (
    selectedId === view.selectedId &&
    top === view.top &&
    selectedItem === view.selectedItem &&
    itemTop === view.itemTop
  ) {
    return state;
  }
  return { ...state, view: { ...view, selectedId, top, selectedItem, itemTop } };
}

/**
 * The batch under the cursor when the list does not show the chosen one. An open batch stays the chosen one. Orders that
 * move batches about get a choice at once, so that no other batch moves under the cursor.
 */
function unlisted({ view, batches }: DashboardState, rows: readonly Batch[]): string | null {
  const { screen, selectedId, sort } = view;
  const isOpen = screen === "detail" || screen === "picture";
  if (isOpen && selectedId !== null && batches.has(selectedId)) return selectedId;
  return sort === "newest" ? null : (rows[0]?.id ?? null);
}

function scrollTo(top: number, to: { index: number; lines: number; count: number }): number {
  const last = Math.max(0, to.count - to.lines);
  if (to.index < top) return Math.min(to.index, last);
  if (to.index >= top + to.lines) return Math.min(to.index - to.lines + 1, last);
  return Math.min(top, last);
}
