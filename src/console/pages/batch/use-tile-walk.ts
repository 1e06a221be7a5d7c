import { type FocusEvent, type RefObject, useEffect, useRef, useState } from "react";
import { useKeys } from "../../hooks/use-keys.ts";
import { type Grid, placeOf } from "./use-grid.ts";

/** The space for the bars above and below the gallery, in pixels. */
const MARGIN = 90;

interface TileWalk {
  /** Only this tile is reached with the tab key: the arrow keys lead to the others. */
  tabStop: number;
  onFocus: (event: FocusEvent<HTMLElement>) => void;
  /** Moves the focus to a tile, which may be far away. */
  focusTile: (index: number) => void;
}

/** Lets the keys of a gallery move the focus from tile to tile, and select the tile that has it. */
export function useTileWalk(
  list: RefObject<HTMLElement | null>,
  {
    grid,
    count,
    onToggle,
  }: { grid: Grid; count: number; onToggle: (index: number, isRange: boolean) => void },
): TileWalk {
  const [last, setLast] = useState(0);
  const wanted = useRef<number | null>(null);
  const tabStop = last >= grid.first && last < grid.end ? last : grid.first;

  const focusWanted = () => {
    list.current
      ?.querySelector<HTMLElement>(`[data-index="${wanted.current}"]`)
      ?.focus({ preventScroll: true });
  };
  // A tile that is far away is drawn only after the page was scrolled to it.
  useEffect(() => {
    if (wanted.current !== null) focusWanted();
  });
  const focusTile = (index: number) => {
    wanted.current = Math.min(count - 1, Math.max(0, index));
    showTile(list.current, placeOf(grid, wanted.current).y, grid.rowHeight);
    focusWanted();
  };
  const onFocus = ({ target }: FocusEvent<HTMLElement>) => {
    wanted.current = null;
    const index = indexOf(target);
    if (index !== null) setLast(index);
  };

  const atTile = (act: (index: number, event: KeyboardEvent) => void) => (event: KeyboardEvent) => {
    const index = indexOf(document.activeElement);
    if (index === null) return;
    event.preventDefault();
    act(index, event);
  };
  const by = (step: number) => atTile((index) => focusTile(index + step));
  const byOrEnter = (step: number) => (event: KeyboardEvent) => {
    event.preventDefault();
    const index = indexOf(document.activeElement);
    focusTile(index === null ? tabStop : index + step);
  };
  const page = grid.columns * Math.max(1, Math.floor((innerHeight - 2 * MARGIN) / grid.rowHeight));
  const toggle = atTile((index, event) => onToggle(index, event.shiftKey));
  useKeys({
    j: byOrEnter(1),
    k: byOrEnter(-1),
    ArrowRight: by(1),
    ArrowLeft: by(-1),
    ArrowDown: by(grid.columns),
    ArrowUp: by(-grid.columns),
    PageDown: by(page),
    PageUp: by(-page),
    Home: atTile(() => focusTile(0)),
    End: atTile(() => focusTile(count - 1)),
    x: toggle,
    " ": toggle,
  });
  return { tabStop, onFocus, focusTile };
}

function indexOf(element: Element | null): number | null {
  const index = element instanceof HTMLElement ? element.dataset.index : undefined;
  return index === undefined ? null : Number(index);
}

function showTile(list: HTMLElement | null, y: number, rowHeight: number): void {
  const top = (list?.getBoundingClientRect().top ?? 0) + y;
  if (top < MARGIN) scrollBy(0, top - MARGIN);
  else if (top + rowHeight > innerHeight - MARGIN) scrollBy(0, top + rowHeight - innerHeight + MARGIN);
}
