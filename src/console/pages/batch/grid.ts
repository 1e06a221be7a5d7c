import { type RefObject, useLayoutEffect, useState } from "react";

export interface Grid {
  columns: number;
  /** How many of them belong together: those of a prompt in a comparison; 1 in other grids. */
  group: number;
  /** Pixels, as all lengths here. */
  tileWidth: number;
  rowHeight: number;
  /** For the prompt above each row of a comparison; 0 in other grids. */
  headHeight: number;
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
const ROW_HEAD = 34;
/** The least and the largest tile of a comparison, and the one from which on a line has room for several prompts. */
const LEAST_COMPARED = 96;
const MOST_COMPARED = 480;
const GOOD_COMPARED = 216;
/** Between the prompts of a line, besides the gap. */
const GROUP_GAP = 26;

/** Which tiles of a long grid to draw: those that the window shows, and some more above and below. */
export function useGrid(
  container: RefObject<HTMLElement | null>,
  count: number,
  compared: number | null,
): Grid {
  const [view, setView] = useState<View>({ shape: shapeOf(0, null), firstRow: 0, endRow: 0 });
  useLayoutEffect(() => {
    const element = container.current;
    if (!element) return;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const { width, top } = element.getBoundingClientRect();
      const next = viewOf(shapeOf(width, compared), -top, innerHeight);
      // Most steps of scrolling change nothing about the rows.
      setView((old) =>
        old.shape.tileWidth === next.shape.tileWidth &&
        old.shape.columns === next.shape.columns &&
        old.shape.headHeight === next.shape.headHeight &&
        old.firstRow === next.firstRow &&
        old.endRow === next.endRow
          ? old
          : next,
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
  }, [container, compared]);
  const { columns, rowHeight } = view.shape;
  return {
    ...view.shape,
    first: Math.min(count, view.firstRow * columns),
    end: Math.min(count, view.endRow * columns),
    height: Math.max(0, Math.ceil(count / columns) * rowHeight - GAP),
  };
}

type Shape = Pick<Grid, "columns" | "group" | "tileWidth" | "rowHeight" | "headHeight">;

interface View {
  shape: Shape;
  firstRow: number;
  endRow: number;
}

function viewOf(shape: Shape, top: number, height: number): View {
  const { rowHeight } = shape;
  return {
    shape,
    firstRow: Math.max(0, Math.floor(top / rowHeight) - EXTRA_ROWS),
    endRow: Math.max(0, Math.ceil((top + height) / rowHeight) + EXTRA_ROWS),
  };
}

/** `compared`: the columns of a comparison, which are shown where they fit. */
function shapeOf(width: number, compared: number | null): Shape {
  const least = width < NARROW ? 150 : 216;
  const isCompared = compared !== null && width >= compared * (LEAST_COMPARED + GAP);
  const fitting = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
  const group = isCompared ? compared : 1;
  const groupWidth = group * (GOOD_COMPARED + GAP) + GROUP_GAP;
  const groups = Math.max(1, Math.floor((width + GAP + GROUP_GAP) / groupWidth));
  const columns = isCompared ? group * groups : fitting;
  const gaps = GAP * (columns - 1) + (isCompared ? GROUP_GAP * (groups - 1) : 0);
  const room = Math.max(0, (width - gaps) / columns);
  const tileWidth = isCompared ? Math.min(room, MOST_COMPARED) : room;
  const headHeight = isCompared ? ROW_HEAD : 0;
  return { columns, group, tileWidth, headHeight, rowHeight: headHeight + tileWidth + CAPTION + GAP };
}

/** The position of a tile. */
export function placeOf(grid: Grid, index: number): { x: number; y: number } {
  const column = index % grid.columns;
  const groupGaps = grid.group > 1 ? Math.floor(column / grid.group) * GROUP_GAP : 0;
  return {
    x: column * (grid.tileWidth + GAP) + groupGaps,
    y: Math.floor(index / grid.columns) * grid.rowHeight + grid.headHeight,
  };
}
