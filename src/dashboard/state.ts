import type { Batch } from "../client/answers.ts";
import { LOG_LEVELS, type LogLevel, type LogLine, type RequestLine } from "../contract/activity.ts";
import { BATCH_STATUSES, type BatchStatus } from "../contract/statuses.ts";
import { programName } from "../kernel/command-line.ts";
import type {
  Abilities,
  BatchDetail,
  DashboardSource,
  Fact,
  Intent,
  Picture,
  ServiceFacts,
  Vitals,
} from "./model.ts";

/** A pressed key, by its meaning. `char` is any printable text. */
export type Key =
  | { name: "up" | "down" | "pageUp" | "pageDown" | "home" | "end" | "enter" | "escape" | "backspace" }
  | { name: "interrupt" }
  | { name: "char"; text: string };

/** A change that needs no decision: news from the source, a new window size in cells, or the passing of time. */
type Change = Fact | { type: "resize"; columns: number; rows: number } | { type: "tick"; nowMs: number };

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

/** The most batches kept. The oldest ended ones are dropped first. */
const KEPT_BATCHES = 2000;

function mergeBatches(state: DashboardState, rows: readonly Batch[]): DashboardState {
  const batches = new Map(state.batches);
  for (const row of rows) batches.set(row.id, row);
  if (batches.size > KEPT_BATCHES) dropOldest(batches);
  return { ...state, batches };
}

function forgetBatch(state: DashboardState, id: string): DashboardState {
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
function keepInView(state: DashboardState): DashboardState {
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

const KEPT_LINES = 200;
const MESSAGE_MS = 3000;

/** Returns the state after an event, and the person's request if there is one. Pure: no clock, terminal or service. */
export function reduce(state: DashboardState, event: DashboardEvent): Pressed {
  if (event.type === "key") {
    const pressed = pressKey(state, event.key);
    return { state: keepInView(pressed.state), intent: pressed.intent };
  }
  return { state: reduceChanges(state, [event]), intent: null };
}

/** The result of a key press: the new state, and the person's request if there is one. */
interface Pressed {
  state: DashboardState;
  intent: Intent | null;
}

/** Returns the state after many changes. It scrolls the lists only once, at the end. */
function reduceChanges(state: DashboardState, changes: readonly Change[]): DashboardState {
  let next = state;
  let read: Batch[] = [];
  for (const change of changes) {
    // Batches are collected and merged together, because each merge copies the whole list.
    if (change.type === "batches") for (const batch of change.batches) read.push(batch);
    else if (change.type === "batch-gone") {
      next = forgetBatch(mergeBatches(next, read), change.id);
      read = [];
    } else next = applyChange(next, change);
  }
  if (read.length > 0) next = mergeBatches(next, read);
  return next === state ? state : keepInView(next);
}

function applyChange(
  state: DashboardState,
  change: Exclude<Change, { type: "batches" | "batch-gone" }>,
): DashboardState {
  switch (change.type) {
    case "service":
      return { ...state, service: change.facts };
    case "images":
      return countImages(state, change);
    case "vitals":
      return { ...state, vitals: { ...state.vitals, ...change.vitals } };
    case "request":
      return { ...state, requests: [...state.requests, change.line].slice(-KEPT_LINES) };
    case "log":
      return { ...state, log: [...state.log, change.line].slice(-KEPT_LINES) };
    case "detail":
      return { ...state, detail: change.detail };
    case "picture":
      return { ...state, picture: change.picture };
    case "message": {
      const { text, isError = false } = change;
      return { ...state, view: { ...state.view, message: { text, isError, atMs: state.nowMs } } };
    }
    case "resize":
      return { ...state, size: { columns: change.columns, rows: change.rows } };
    case "tick":
      return dropOldMessage(advanceRate({ ...state, nowMs: change.nowMs }));
  }
}

function dropOldMessage(state: DashboardState): DashboardState {
  const { message } = state.view;
  if (message === null || state.nowMs - message.atMs < MESSAGE_MS) return state;
  return { ...state, view: { ...state.view, message: null } };
}

/** Asks before an action that cannot be undone. Before quitting it asks only if that stops work. */
function ask(state: DashboardState, kind: Question["kind"]): Pressed {
  const isBusy = [...state.batches.values()].some((row) => !row.isDone);
  if (kind === "quit" && !(isBusy && state.abilities.ownsService)) return { state, intent: { type: "quit" } };
  return withQuestion(state, { kind, batchId: selectedBatch(state)?.id ?? null });
}

/** Reads the answer: a letter that the question names, or no for any other key. */
function answerQuestion(state: DashboardState, question: Question, key: Key): Pressed {
  const answered = withQuestion(state, null).state;
  const letter = key.name === "char" ? key.text.toLowerCase() : "";
  const { kind, batchId } = question;
  if (kind === "quit" && (letter === "y" || letter === "q"))
    return { state: answered, intent: { type: "quit" } };
  if (batchId === null) return { state: answered, intent: null };
  if (kind === "cancel" && letter === "y") return { state: answered, intent: { type: "cancel", batchId } };
  if (kind === "delete" && letter === "o")
    return { state: answered, intent: { type: "delete-outputs", batchId } };
  if (kind === "delete" && letter === "r")
    return { state: answered, intent: { type: "delete-record", batchId } };
  return { state: answered, intent: null };
}

function withQuestion(state: DashboardState, question: Question | null): Pressed {
  // A question replaces the last message.
  return { state: { ...state, view: { ...state.view, question, message: null } }, intent: null };
}

/** Moves the cursor over the batches; null when the key does not move it. */
function moveBatchCursor(state: DashboardState, key: Key): DashboardState | null {
  const rows = visibleBatches(state);
  const index = Math.max(
    0,
    rows.findIndex((row) => row.id === state.view.selectedId),
  );
  const to = target(key, { index, page: layoutOf(state).batchLines, count: rows.length });
  if (to === null) return null;
  const selectedId = key.name === "home" ? null : (rows[to]?.id ?? null);
  return { ...state, view: { ...state.view, selectedId } };
}

/** Moves the cursor over the items of the detail screen; null when the key does not move it. */
function moveItemCursor(state: DashboardState, key: Key): DashboardState | null {
  const count = state.detail?.items.length ?? 0;
  const to = target(key, { index: state.view.selectedItem, page: detailLines(state), count });
  return to === null ? null : { ...state, view: { ...state.view, selectedItem: to } };
}

function target(key: Key, at: { index: number; page: number; count: number }): number | null {
  const steps: Partial<Record<Key["name"], number>> = {
    up: at.index - 1,
    down: at.index + 1,
    pageUp: at.index - at.page,
    pageDown: at.index + at.page,
    home: 0,
    end: at.count - 1,
  };
  const to = steps[key.name];
  return to === undefined ? null : Math.max(0, Math.min(to, at.count - 1));
}

/**
 * Applies a key press. An open question takes the key first, then the filter line, then the screen. The key acts on the
 * batch under the cursor, and the cursor stays on that batch.
 */
function pressKey(before: DashboardState, key: Key): Pressed {
  const state = withView(before, { selectedId: selectedBatch(before)?.id ?? null });
  const { view } = state;
  if (key.name === "interrupt") return { state, intent: { type: "quit" } };
  if (view.question !== null) return answerQuestion(state, view.question, key);
  if (view.isTypingFilter) return typeFilter(state, key);
  if (view.screen === "help") return stay(withView(state, { screen: "batches" }));
  if (view.screen === "picture") return leavePicture(state, key);
  const moved = view.screen === "detail" ? moveItemCursor(state, key) : moveBatchCursor(state, key);
  if (moved !== null) return stay(moved);
  if (key.name === "enter") return view.screen === "detail" ? showPicture(state) : openDetail(state);
  if (key.name === "escape") return goBack(state);
  return key.name === "char" ? pressLetter(state, key.text) : stay(state);
}

function pressLetter(state: DashboardState, letter: string): Pressed {
  const { view, abilities, vitals } = state;
  const batch = selectedBatch(state);
  switch (letter) {
    case "?":
      return stay(withView(state, { screen: "help" }));
    case "q":
      return view.screen === "detail" ? goBack(state) : ask(state, "quit");
    case "/":
      return stay(withView(state, { isTypingFilter: true, screen: "batches" }));
    case "s":
      return stay(withView(state, { sort: after(SORTS, view.sort) }));
    case "l":
      return stay(withView(state, { logLevel: after(LOG_LEVELS, view.logLevel) }));
    case "p":
      if (!abilities.ownsService)
        return stay(showMessage(state, "This service's workers cannot be paused from here."));
      return { state, intent: { type: "pause", isPaused: !vitals.isPaused } };
    case "o":
      return { state, intent: { type: "open-folder", batchId: batch?.id ?? null } };
    case "w":
      if (!abilities.openConsole)
        return stay(showMessage(state, "This service's web console cannot be opened from here."));
      return { state, intent: { type: "open-console" } };
  }
  if (batch === null) return stay(state);
  switch (letter) {
    case "c":
      if (batch.isDone) return stay(showMessage(state, "This batch has ended: there is nothing to cancel."));
      return ask(state, "cancel");
    case "d":
      if (!batch.isDone) {
        return stay(showMessage(state, "Only a batch that has ended can be deleted: cancel it first."));
      }
      return ask(state, "delete");
    case "g":
      if (batch.waiting?.code !== "STOPPED") return stay(showMessage(state, "This batch is not stopped."));
      return { state, intent: { type: "go-on", batchId: batch.id } };
    case "r":
      if (!abilities.ownsService)
        return stay(
          showMessage(state, `Retry needs the prompts: use ${programName()} retry in the run's directory.`),
        );
      if (batch.failCount === 0) return stay(showMessage(state, "No item of this batch has failed."));
      if (!batch.isDone) return stay(showMessage(state, "Wait for the end of the batch, then retry."));
      return { state, intent: { type: "retry", batchId: batch.id } };
    case "v":
      return showPicture(state);
  }
  return stay(state);
}

function openDetail(state: DashboardState): Pressed {
  const batch = selectedBatch(state);
  if (batch === null) return stay(state);
  const view = { screen: "detail" as const, selectedId: batch.id, selectedItem: 0, itemTop: 0 };
  return {
    state: { ...withView(state, view), detail: null },
    intent: { type: "open-detail", batchId: batch.id },
  };
}

/** Opens the picture of the item under the cursor; on the main screen, the details of the batch. */
function showPicture(state: DashboardState): Pressed {
  const batch = selectedBatch(state);
  if (batch === null) return stay(state);
  if (state.view.screen !== "detail") return openDetail(state);
  const item = state.detail?.items[state.view.selectedItem];
  if (item === undefined) return stay(state);
  if (item.status !== "success")
    return stay(showMessage(state, `${item.customId} has no image: ${item.error ?? item.status}`));
  return {
    state: { ...withView(state, { screen: "picture" }), picture: null },
    intent: { type: "show-picture", batchId: batch.id, customId: item.customId, box: pictureBox(state) },
  };
}

/** The pixels that the picture screen can show, between its title and the keys. Each cell shows two, one above the other. */
function pictureBox({ size }: Pick<DashboardState, "size">): { widthPx: number; heightPx: number } {
  return { widthPx: size.columns, heightPx: Math.max(0, size.rows - 2) * 2 };
}

function leavePicture(state: DashboardState, key: Key): Pressed {
  const back = { ...withView(state, { screen: "detail" }), picture: null };
  const step = key.name === "down" ? 1 : key.name === "up" ? -1 : 0;
  if (step === 0) return stay(back);
  const items = state.detail?.items ?? [];
  for (let i = state.view.selectedItem + step; i >= 0 && i < items.length; i += step) {
    if (items[i]?.status === "success") return showPicture(withView(back, { selectedItem: i }));
  }
  return stay(state);
}

function goBack(state: DashboardState): Pressed {
  if (state.view.screen === "detail") {
    return {
      state: { ...withView(state, { screen: "batches" }), detail: null },
      intent: { type: "close-detail" },
    };
  }
  return stay(withView(state, { filter: "", message: null }));
}

function typeFilter(state: DashboardState, key: Key): Pressed {
  const { filter } = state.view;
  if (key.name === "enter") return stay(withView(state, { isTypingFilter: false }));
  if (key.name === "escape") return stay(withView(state, { isTypingFilter: false, filter: "" }));
  if (key.name === "backspace")
    return stay(withView(state, { filter: Array.from(filter).slice(0, -1).join("") }));
  if (key.name === "char") return stay(withView(state, { filter: filter + key.text, top: 0 }));
  return stay(moveBatchCursor(state, key) ?? state);
}

function withView(state: DashboardState, change: Partial<DashboardState["view"]>): DashboardState {
  return { ...state, view: { ...state.view, ...change } };
}

function showMessage(state: DashboardState, text: string): DashboardState {
  return withView(state, { message: { text, isError: false, atMs: state.nowMs } });
}

const stay = (state: DashboardState): Pressed => ({ state, intent: null });

function after<T>(list: readonly T[], current: T): T {
  return list[(list.indexOf(current) + 1) % list.length] ?? current;
}

/** The seconds that the sparkline shows. */
const RATE_SECONDS = 60;
/** Adds an empty entry for each second that has passed. A clock that went backwards changes nothing. */
function advanceRate(state: DashboardState): DashboardState {
  const passed = Math.floor((state.nowMs - state.rateAtMs) / 1000);
  if (passed <= 0) return state;
  const empty = Array.from({ length: Math.min(passed, RATE_SECONDS) }, () => 0);
  const imagesBySecond = [...state.imagesBySecond, ...empty].slice(-RATE_SECONDS);
  return { ...state, imagesBySecond, rateAtMs: state.rateAtMs + passed * 1000 };
}

function countImages(state: DashboardState, event: { count: number; atMs: number }): DashboardState {
  const at = advanceRate({ ...state, nowMs: Math.max(state.nowMs, event.atMs) });
  const seconds = at.imagesBySecond.length === 0 ? [0] : [...at.imagesBySecond];
  seconds[seconds.length - 1] = (seconds.at(-1) ?? 0) + event.count;
  return { ...at, imagesBySecond: seconds };
}

/**
 * The dashboard without its looks. It collects the facts of the source, turns them into a new state a few times a second,
 * and passes the person's requests to the source. It calls `show` with each new state.
 */
export class DashboardSession {
  state: DashboardState;
  readonly #source: DashboardSource;
  readonly #show: (state: DashboardState) => void;
  readonly #nowMs: () => number;
  readonly #waiting: Fact[] = [];
  readonly #stop: () => void;
  readonly #onQuit: () => void;

  constructor(
    source: DashboardSource,
    start: {
      columns: number;
      rows: number;
      nowMs: () => number;
      show: (state: DashboardState) => void;
      onQuit: () => void;
    },
  ) {
    this.#source = source;
    this.#show = start.show;
    this.#nowMs = start.nowMs;
    this.#onQuit = start.onQuit;
    const { columns, rows } = start;
    const empty = initialState({ nowMs: start.nowMs(), columns, rows, abilities: source.abilities });
    this.#stop = source.start((event) => this.#waiting.push(event));
    // The first frame already shows the facts that the source reported at once.
    this.state = reduceChanges(empty, this.#waiting.splice(0));
  }

  /** Shows everything that happened since the last frame. The one timer of the dashboard calls it. */
  frame(): void {
    const before = this.state;
    const changes: Change[] = this.#waiting.splice(0);
    const nowMs = this.#nowMs();
    if (Math.floor(nowMs / 1000) !== Math.floor(before.nowMs / 1000)) changes.push({ type: "tick", nowMs });
    this.state = reduceChanges(before, changes);
    if (this.state !== before) this.#show(this.state);
  }

  /** Shows the effect of an event at once: of a key, or of a new window size. */
  now(event: DashboardEvent): void {
    const { state, intent } = reduce(this.state, event);
    this.state = state;
    if (intent !== null) this.#perform(intent);
    this.#show(this.state);
  }

  stop(): void {
    this.#stop();
  }

  #perform(intent: Intent): void {
    if (intent.type === "quit") {
      this.#onQuit();
      return;
    }
    this.#source.perform(intent).catch((error: unknown) => this.#showFailure(error));
  }

  #showFailure(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.#waiting.push({ type: "message", text, isError: true });
  }
}
