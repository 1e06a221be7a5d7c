import { visibleBatches } from "./batches.ts";
import type { Key } from "./input.ts";
import { detailLines, layoutOf } from "./layout.ts";
import type { DashboardState } from "./state.ts";

/** Moves the cursor over the batches; null when the key does not move it. */
export function moveBatchCursor(state: DashboardState, key: Key): DashboardState | null {
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
export function moveItemCursor(state: DashboardState, key: Key): DashboardState | null {
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
