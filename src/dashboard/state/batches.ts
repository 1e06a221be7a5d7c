import type { Batch } from "../../client/answers.ts";
import { BATCH_STATUSES, type BatchStatus } from "../../contract/statuses.ts";
import type { DashboardState, Sort } from "./state.ts";

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

const ORDERS: Record<Sort, Order> = {
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
