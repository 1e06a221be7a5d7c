import type { Batch } from "../../client/answers.ts";
import { visibleBatches } from "./batches.ts";
import { detailLines, layoutOf } from "./layout.ts";
import type { DashboardState } from "./state.ts";

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
