import { type RefObject, useLayoutEffect, useState } from "react";

export interface Grid {
  columns: number;
  /** Pixels, as all lengths here. */
  tileWidth: number;
  rowHeight: number;
  /** The tiles from `first` up to but not including `end` are near the window. */
  first: number;
  end: number;
  /** The height of all rows. */
  height: number;
}

/** The lengths of the grid. The style sheet knows the gap and the caption, too. */
const GAP = 14;
const CAPTION = 52;
const NARROW = 600;
const EXTRA_ROWS = 2;

/** Which tiles of a long grid to draw: those that the window shows, and some more above and below. */
export function useGrid(container: RefObject<HTMLElement | null>, count: number): Grid {
  const [view, setView] = useState<View>({ width: 0, firstRow: 0, endRow: 0 });
  useLayoutEffect(() => {
    const element = container.current;
    if (!element) return;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const { width, top } = element.getBoundingClientRect();
      const next = viewOf(width, -top, innerHeight);
      // Most steps of scrolling change nothing about the rows.
      setView((old) =>
        old.width === next.width && old.firstRow === next.firstRow && old.endRow === next.endRow ? old : next,
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
  const { columns, tileWidth, rowHeight } = shapeOf(view.width);
  return {
    columns,
    tileWidth,
    rowHeight,
    first: Math.min(count, view.firstRow * columns),
    end: Math.min(count, view.endRow * columns),
    height: Math.max(0, Math.ceil(count / columns) * rowHeight - GAP),
  };
}

interface View {
  width: number;
  firstRow: number;
  endRow: number;
}

function viewOf(width: number, top: number, height: number): View {
  const { rowHeight } = shapeOf(width);
  return {
    width,
    firstRow: Math.max(0, Math.floor(top / rowHeight) - EXTRA_ROWS),
    endRow: Math.max(0, Math.ceil((top + height) / rowHeight) + EXTRA_ROWS),
  };
}

function shapeOf(width: number): Pick<Grid, "columns" | "tileWidth" | "rowHeight"> {
  const least = width < NARROW ? 150 : 216;
  const columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
  const tileWidth = Math.max(0, (width - GAP * (columns - 1)) / columns);
  return { columns, tileWidth, rowHeight: tileWidth + CAPTION + GAP };
}

/** The position of a tile. */
export function placeOf(grid: Grid, index: number): { x: number; y: number } {
  return {
    x: (index % grid.columns) * (grid.tileWidth + GAP),
    y: Math.floor(index / grid.columns) * grid.rowHeight,
  };
}
