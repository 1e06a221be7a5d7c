import type { DashboardEvent, Fact } from "../events.ts";
import type { BatchRow } from "../model.ts";
import { forgetBatch, mergeBatches } from "./batches.ts";
import { keepInView } from "./cursor.ts";
import { pressKey } from "./keys.ts";
import { advanceRate, countImages } from "./rate.ts";
import type { DashboardState, Pressed } from "./state.ts";

const KEPT_LINES = 200;
const MESSAGE_MS = 8000;

/** What an event makes of the state, and what the person asked for with it. Pure: no clock, no terminal, no service. */
export function reduce(state: DashboardState, event: DashboardEvent): Pressed {
  if (event.type === "key") {
    const pressed = pressKey(state, event.key);
    return { state: keepInView(pressed.state), intent: pressed.intent };
  }
  return { state: reduceFacts(state, [event]), intent: null };
}

/** The same for many events that no person made; what is shown is put in order once, at the end. */
export function reduceFacts(state: DashboardState, facts: readonly Fact[]): DashboardState {
  let next = state;
  let rows: BatchRow[] = [];
  for (const fact of facts) {
    // Changes of batches are put in together: each time costs a copy of the list.
    if (fact.type === "batches") for (const row of fact.rows) rows.push(row);
    else if (fact.type === "batch-gone") {
      next = forgetBatch(mergeBatches(next, rows), fact.id);
      rows = [];
    } else next = applyFact(next, fact);
  }
  if (rows.length > 0) next = mergeBatches(next, rows);
  return next === state ? state : keepInView(next);
}

function applyFact(
  state: DashboardState,
  event: Exclude<Fact, { type: "batches" | "batch-gone" }>,
): DashboardState {
  switch (event.type) {
    case "service":
      return { ...state, service: event.facts };
    case "images":
      return countImages(state, event);
    case "vitals":
      return { ...state, vitals: { ...state.vitals, ...event.vitals } };
    case "request":
      return { ...state, requests: [...state.requests, event.line].slice(-KEPT_LINES) };
    case "log":
      return { ...state, log: [...state.log, event.line].slice(-KEPT_LINES) };
    case "detail":
      return { ...state, detail: event.detail };
    case "picture":
      return { ...state, picture: event.picture };
    case "message": {
      const { text, isError = false } = event;
      return { ...state, view: { ...state.view, message: { text, isError, atMs: state.nowMs } } };
    }
    case "resize":
      return { ...state, size: { columns: event.columns, rows: event.rows } };
    case "tick":
      return dropOldMessage(advanceRate({ ...state, nowMs: event.nowMs }));
  }
}

function dropOldMessage(state: DashboardState): DashboardState {
  const { message } = state.view;
  if (message === null || state.nowMs - message.atMs < MESSAGE_MS) return state;
  return { ...state, view: { ...state.view, message: null } };
}
