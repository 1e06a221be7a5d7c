import { type RefObject, useLayoutEffect, useState } from "react";

export interface Grid {
  columns: number;
  /** Pixels, as all lengths here. */
  tileWidth: number;
  rowHeight: number;
  /** The tiles from `first` up to but not including `end` are near the window. */
  first: number;
  end: number;
  /** Of all rows. */
  height: number;
}

/** The lengths of the grid. The style sheet knows the gap and the caption, too. */
const GAP = 14;
const CAPTION = 52;
const NARROW = 600;
const EXTRA_ROWS = 2;

/** Which tiles of a long grid to draw: those that the window shows, and some more above and below. */
export function useGrid(container: RefObject<HTMLElement | null>, count: number): Grid {
  const [view, setView] = useState({ width: 0, top: 0, height: 0 });
  useLayoutEffect(() => {
    const element = container.current;
    if (!element) return;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const { width, top } = element.getBoundingClientRect();
      const next = { width, top: Math.round(-top), height: innerHeight };
      setView((old) =>
        old.width === next.width && old.top === next.top && old.height === next.height ? old : next,
      );
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    const observer = new ResizeObserver(later);
    observer.observe(element);
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [container]);
  return layOut(count, view);
}

function layOut(count: number, view: { width: number; top: number; height: number }): Grid {
  const isNarrow = view.width < NARROW;
  const least = isNarrow ? 150 : 216;
  const columns = Math.max(1, Math.floor((view.width + GAP) / (least + GAP)));
  const tileWidth = (view.width - GAP * (columns - 1)) / columns;
  const rowHeight = tileWidth + CAPTION + GAP;
  const rows = Math.ceil(count / columns);
  const firstRow = Math.max(0, Math.floor(view.top / rowHeight) - EXTRA_ROWS);
  const endRow = Math.min(rows, Math.ceil((view.top + view.height) / rowHeight) + EXTRA_ROWS);
  return {
    columns,
    tileWidth,
    rowHeight,
    first: firstRow * columns,
    end: view.width === 0 ? 0 : Math.min(count, endRow * columns),
    height: Math.max(0, rows * rowHeight - GAP),
  };
}

/** Where a tile stands. */
export function placeOf(grid: Grid, index: number): { x: number; y: number } {
  return {
    x: (index % grid.columns) * (grid.tileWidth + GAP),
    y: Math.floor(index / grid.columns) * grid.rowHeight,
  };
}
