import { type Batch, readBatch } from "../../src/client/answers.ts";
import { isTerminal } from "../../src/contract/statuses.ts";
import type { Intent, ItemRow } from "../../src/dashboard/model.ts";
import {
  type DashboardEvent,
  type DashboardState,
  initialState,
  type Key,
  reduce,
} from "../../src/dashboard/state.ts";

export const NOW = 1_800_000_000_000;

export const ALL_ABILITIES = {
  ownsService: true,
  openConsole: true,
};

export function batchRow(n: number, change: Partial<Batch> = {}): Batch {
  const status = change.status ?? "running";
  const batch = readBatch({ id: `imgbatch_${String(n).padStart(32, "0")}`, status });
  if (batch === null) throw new Error("this is no batch");
  return {
    ...batch,
    isDone: isTerminal(status),
    name: `batch ${n}`,
    model: "vendorx-3.1-flash-image",
    source: "batch",
    provider: "procedural",
    itemCount: 10,
    successCount: 4,
    failCount: 1,
    estimatedCostMicroUsd: 335_000,
    holdMicroUsd: 335_000,
    actualCostMicroUsd: 134_000,
    createdAtMs: NOW - 60_000 + n * 1000,
    ...change,
  };
}

export function itemRow(n: number, change: Partial<ItemRow> = {}): ItemRow {
  const success = { status: "success" as const, error: null, sizeBytes: 180_000, costMicroUsd: 33_500 };
  return { customId: `i${n}`, prompt: `picture ${n}`, ...success, ...change };
}

/** A view of 80×24 cells with these batches. */
export function viewOf(batches: readonly Batch[], size = { columns: 80, rows: 24 }): DashboardState {
  const start = initialState({ nowMs: NOW, ...size, abilities: ALL_ABILITIES });
  return applied(start, { type: "batches", batches });
}

/** The state after these events, one after the other. */
export function applied(state: DashboardState, ...events: DashboardEvent[]): DashboardState {
  return events.reduce((now, event) => reduce(now, event).state, state);
}

/** Presses keys: names such as `down`, or letters. Returns the last state and the requests made on the way. */
export function press(
  state: DashboardState,
  ...keys: string[]
): { state: DashboardState; intents: Intent[] } {
  const intents: Intent[] = [];
  let now = state;
  for (const name of keys) {
    const key = (name.length === 1 ? { name: "char", text: name } : { name }) as Key;
    const pressed = reduce(now, { type: "key", key });
    now = pressed.state;
    if (pressed.intent !== null) intents.push(pressed.intent);
  }
  return { state: now, intents };
}
