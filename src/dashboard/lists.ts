import type { Batch } from "../client/answers.ts";
import { LOG_LEVELS, type LogLine } from "../contract/activity.ts";
import { BATCH_STATUSES, type BatchStatus } from "../contract/statuses.ts";
import type { DashboardState } from "./state.ts";

/** The most batches kept. The oldest ended ones are dropped first. */
const KEPT_BATCHES = 2000;

export function mergeBatches(state: DashboardState, rows: readonly Batch[]): DashboardState {
  const batches = new Map(state.batches);
  for (const row of rows) batches.set(row.id, row);
  if (batches.size > KEPT_BATCHES) dropOldest(batches);
  return { ...state, batches };
}

export function forgetBatch(state: DashboardState, id: string): DashboardState {
  const shown = visibleBatches(state);
  const index = shown.findIndex((row) => row.id === id);
  const batches = new Map(state.batches);
  batches.delete(id);
  const next = isOpen(state, id)
    ? { ...state, batches, detail: null, view: { ...state.view, screen: "batches" as const } }
    : { ...state, batches };
  if (state.view.selectedId !== id) return next;
  const neighbour = shown[index + 1] ?? shown[index - 1];
  return { ...next, view: { ...next.view, selectedId: neighbour?.id ?? null } };
}

function isOpen(state: DashboardState, id: string): boolean {
  const { screen } = state.view;
  return (screen === "detail" || screen === "picture") && selectedBatch(state)?.id === id;
}

/** The batches that pass the filter, in the chosen order. */
export function visibleBatches(state: DashboardState): Batch[] {
  const { filter, sort } = state.view;
  const wanted = filter.trim().toLocaleLowerCase();
  const rows = [...state.batches.values()].filter((row) => wanted === "" || matches(row, wanted));
  return rows.sort((a, b) => ORDERS[sort](a, b) || newestFirst(a, b));
}

export function nameOf({ name, id }: Batch): string {
  return name ?? id;
}

/** The status of a batch. One that this version does not know counts as running before the end. */
export function statusOf({ status, isDone }: Batch): BatchStatus {
  return BATCH_STATUSES.find((known) => known === status) ?? (isDone ? "completed" : "running");
}

/** The batch under the cursor. */
export function selectedBatch(state: DashboardState): Batch | null {
  const { selectedId } = state.view;
  return (selectedId === null ? visibleBatches(state)[0] : state.batches.get(selectedId)) ?? null;
}

/** The share of the items that have ended, from 0 to 1; always 1 for an ended batch. */
export function progressOf(row: Batch): number {
  if (row.isDone) return 1;
  return row.itemCount ? (row.successCount + row.failCount) / row.itemCount : 0;
}

function matches(row: Batch, wanted: string): boolean {
  return [row.name, row.id, row.status, row.model].some((text) => text?.toLocaleLowerCase().includes(wanted));
}

type Order = (a: Batch, b: Batch) => number;

const newestFirst: Order = (a, b) => (b.createdAtMs ?? 0) - (a.createdAtMs ?? 0) || (a.id < b.id ? 1 : -1);

/** Batches at work come first, then those that wait, then the ended ones. */
const STATUS_ORDER: readonly BatchStatus[] = [
  "running",
  "processing_results",
  "settling",
  "queued",
  "failed",
  "cancelled",
  "completed",
  "output_deleted",
];

const ORDERS: Record<DashboardState["view"]["sort"], Order> = {
  newest: newestFirst,
  status: (a, b) => STATUS_ORDER.indexOf(statusOf(a)) - STATUS_ORDER.indexOf(statusOf(b)),
  progress: (a, b) => progressOf(a) - progressOf(b),
  name: (a, b) => nameOf(a).localeCompare(nameOf(b)),
  cost: (a, b) => (b.actualCostMicroUsd ?? 0) - (a.actualCostMicroUsd ?? 0),
};

function dropOldest(batches: Map<string, Batch>): void {
  const ended = [...batches.values()].filter((row) => row.isDone).sort(newestFirst);
  for (const row of ended.slice(-(batches.size - KEPT_BATCHES))) batches.delete(row.id);
}

/** The heights of the parts of the main screen, in lines. Together they fit into the window. */
interface Layout {
  header: number;
  /** Lines for batches, without the column titles. */
  batchLines: number;
  /** Lines for requests, without the title; 0 leaves them out. */
  requestLines: number;
  /** Lines for the log, without the title; 0 leaves it out. */
  logLines: number;
  /** Whether requests and log stand side by side. */
  isWide: boolean;
}

const WIDE_COLUMNS = 130;
/** Two lines of header without troubles, the rule below, the column titles, the queue with its rule, and the keys. */
const FIXED_LINES = 7;

/** Shares the window among the parts. The batches get the lines that the others leave. A part with nothing to show goes. */
export function layoutOf(
  state: Pick<DashboardState, "size" | "log" | "requests" | "abilities" | "vitals" | "view">,
): Layout {
  const { size, requests, abilities, vitals } = state;
  const troubleLines = vitals.troubles.length === 0 ? 0 : 1;
  const header = 2 + troubleLines;
  const free = Math.max(0, size.rows - FIXED_LINES - troubleLines);
  const logged = shownLog(state).length;
  const isWide = size.columns >= WIDE_COLUMNS && requests.length > 0 && logged > 0;
  const withParts = (requestLines: number, logLines: number) => {
    const heights = [requestLines, logLines].map((lines) => (lines === 0 ? 0 : lines + 1));
    const lower = isWide ? Math.max(...heights) : heights.reduce((sum, height) => sum + height, 0);
    return { header, batchLines: free - lower, requestLines, logLines, isWide };
  };
  if (free < 10 || !abilities.ownsService) return withParts(0, 0);
  const most = Math.min(16, Math.floor(free * 0.4)) - 1;
  if (isWide) {
    const lines = Math.min(most, Math.max(requests.length, logged));
    return withParts(lines, lines);
  }
  const logLines = Math.min(3, logged, Math.max(1, Math.floor((most + 1) / 3)));
  return withParts(Math.min(requests.length, most - (logLines === 0 ? 0 : logLines + 1)), logLines);
}

/** The lines of the log that the chosen level shows, the oldest first. */
export function shownLog({ log, view }: Pick<DashboardState, "log" | "view">): LogLine[] {
  const wanted = LOG_LEVELS.slice(0, LOG_LEVELS.indexOf(view.logLevel) + 1);
  return log.filter((line) => wanted.includes(line.level));
}

/** Lines for items on the detail screen, below the facts of the batch and above the keys. */
export function detailLines({ size }: Pick<DashboardState, "size">): number {
  return Math.max(1, size.rows - 9);
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
