import type { Batch } from "../../client/answers.ts";
import { forgetBatch, mergeBatches } from "./batches.ts";
import { pressKey } from "./keys.ts";
import { keepInView } from "./layout.ts";
import { advanceRate, countImages } from "./rate.ts";
import type { Change, DashboardEvent, DashboardState, Pressed } from "./state.ts";

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

/** Returns the state after many changes. It scrolls the lists only once, at the end. */
export function reduceChanges(state: DashboardState, changes: readonly Change[]): DashboardState {
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
