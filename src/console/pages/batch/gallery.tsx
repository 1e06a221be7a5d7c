import {
  type FocusEvent,
  Fragment,
  memo,
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { isTerminal } from "../../../contract/statuses.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import { useKeys } from "../../parts/keys.tsx";
import { Icon } from "../../parts/notes.tsx";
import { RemotePicture, sheetAt, thumbnailPath } from "../../parts/pictures.tsx";
import { usd } from "../../parts/status.tsx";
import { isDeleted } from "./images.ts";
import type { PlacedItem } from "./use-items.ts";

interface Grid {
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
function useGrid(container: RefObject<HTMLElement | null>, count: number, compared: number | null): Grid {
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
function placeOf(grid: Grid, index: number): { x: number; y: number } {
  const column = index % grid.columns;
  const groupGaps = grid.group > 1 ? Math.floor(column / grid.group) * GROUP_GAP : 0;
  return {
    x: column * (grid.tileWidth + GAP) + groupGaps,
    y: Math.floor(index / grid.columns) * grid.rowHeight + grid.headHeight,
  };
}

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
function useTileWalk(
  list: RefObject<HTMLElement | null>,
  {
    grid,
    places,
    onToggle,
  }: {
    grid: Grid;
    places: readonly (PlacedItem | null)[];
    onToggle: (index: number, isRange: boolean) => void;
  },
): TileWalk {
  const [last, setLast] = useState(0);
  const wanted = useRef<number | null>(null);
  const taken = (from: number, step: 1 | -1) => {
    let index = Math.min(places.length - 1, Math.max(0, from));
    while (places[index] === null) index += step;
    return places[index] ? index : null;
  };
  const tabStop = last >= grid.first && last < grid.end ? last : (taken(grid.first, 1) ?? grid.first);

  const focusWanted = () => {
    list.current
      ?.querySelector<HTMLElement>(`[data-index="${wanted.current}"]`)
      ?.focus({ preventScroll: true });
  };
  // A tile that is far away is drawn only after the page was scrolled to it.
  useEffect(() => {
    if (wanted.current !== null) focusWanted();
  });
  const focusTile = (index: number, step: 1 | -1 = 1) => {
    // A comparison has places without an image.
    wanted.current = taken(index, step) ?? taken(index, step === 1 ? -1 : 1);
    if (wanted.current === null) return;
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
  const by = (step: number) => atTile((index) => focusTile(index + step, step < 0 ? -1 : 1));
  const byOrEnter = (step: number) => (event: KeyboardEvent) => {
    event.preventDefault();
    const index = indexOf(document.activeElement);
    focusTile(index === null ? tabStop : index + step, step < 0 ? -1 : 1);
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
    End: atTile(() => focusTile(places.length - 1, -1)),
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

interface TileProps {
  item: PlacedItem;
  index: number;
  count: number;
  isSelected: boolean;
  isTabStop: boolean;
  x: number;
  y: number;
  width: number;
  /** Instead of the id, in a comparison. */
  variant: string | null;
  onOpen: (key: string) => void;
  onToggle: (index: number, isRange: boolean) => void;
}

/** One item of a batch: its picture or its state, and below what it is. */
const Tile = memo(function Tile(props: TileProps) {
  const { item, index, count, isSelected, isTabStop, x, y, width, variant, onOpen, onToggle } = props;
  const { key, custom_id, status, error } = item;
  const prompt = item.prompt ?? item.prompt_preview;
  return (
    <li
      className={`tile ${status} ${isSelected ? "selected" : ""}`}
      style={{ transform: `translate(${x}px, ${y}px)`, width }}
      aria-posinset={index + 1}
      aria-setsize={count}
    >
      <button
        type="button"
        className="tile-open"
        data-index={index}
        tabIndex={isTabStop ? 0 : -1}
        style={{ height: width }}
        aria-label={`${custom_id}, ${status}: ${error?.message ?? item.prompt_preview}`}
        onClick={() => onOpen(key)}
        // The space bar selects. In Firefox it would press the button, too.
        onKeyUp={(event) => event.key === " " && event.preventDefault()}
      >
        <TilePicture {...props} />
      </button>
      <label className="tile-check">
        <input
          type="checkbox"
          checked={isSelected}
          tabIndex={isTabStop ? 0 : -1}
          aria-label={`Select ${custom_id}`}
          onChange={(event) => onToggle(index, (event.nativeEvent as MouseEvent).shiftKey)}
        />
      </label>
      <div className="tile-text">
        <span className="tile-id" dir="auto" title={variant ?? custom_id}>
          {variant ?? custom_id}
        </span>
        <span className={`tile-facts ${error ? "fails" : ""}`} dir="auto" title={prompt}>
          {error ? error.code : variant === null ? prompt : factsOf(item)}
        </span>
      </div>
    </li>
  );
});

function TilePicture({ item, width }: TileProps) {
  const { batch, custom_id, status, error, images, position } = item;
  if (status === "failed")
    return (
      <span className="tile-error">
        <Icon name="warning" />
        <span dir="auto">{error?.message}</span>
      </span>
    );
  if (status === "pending") return <span className="picture-waits" />;
  if (isDeleted(item)) return <span className="tile-gone">deleted</span>;
  const edge = width * devicePixelRatio > 300 ? 1024 : 256;
  const sheet = edge === 256 && isTerminal(batch.status) ? sheetAt(batch.id, position) : null;
  const path = thumbnailPath(batch.id, custom_id, edge);
  return <RemotePicture path={path} sheet={sheet} alt="" size={images?.[0]} />;
}

/** `1024 × 1024 · $0.067 · 4 s`: what images of one prompt are compared by. */
function factsOf({ images, cost, took_ms, custom_id, batch }: PlacedItem): string {
  const [image] = images ?? [];
  const time = took_ms === null ? [] : [formatDuration(took_ms)];
  const price = cost === null || batch.play_money ? [] : [usd(cost)];
  return image ? [`${image.width} × ${image.height}`, ...price, ...time].join(" · ") : custom_id;
}

/** The pictures of a page, of which only those near the window are in it. */
export function Gallery(props: {
  /** In a comparison, row by row. */
  places: readonly (PlacedItem | null)[];
  /** The variants of a comparison, a column each; null for a plain grid. */
  columns: readonly string[] | null;
  /** The key of the image that is shown large; null: none. */
  openItem: string | null;
  /** By key. */
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onOpen: (key: string) => void;
}) {
  const { places, columns, openItem, selected, onSelect, onOpen } = props;
  const list = useRef<HTMLUListElement>(null);
  const grid = useGrid(list, places.length, columns?.length ?? null);
  const [lastToggled, setLastToggled] = useState(0);
  const latest = useRef({ places, selected, lastToggled, onSelect, onOpen });
  latest.current = { places, selected, lastToggled, onSelect, onOpen };

  const toggle = useCallback((index: number, isRange: boolean) => {
    const now = latest.current;
    const ends = isRange ? [now.lastToggled, index].sort((a, b) => a - b) : [index, index];
    const [from = index, to = index] = ends;
    const next = new Set(now.selected);
    const isOn = !now.selected.has(now.places[index]?.key ?? "");
    for (const item of now.places.slice(from, to + 1)) {
      if (item === null) continue;
      if (isOn) next.add(item.key);
      else next.delete(item.key);
    }
    setLastToggled(index);
    now.onSelect(next);
  }, []);
  const open = useCallback((key: string) => latest.current.onOpen(key), []);

  const { tabStop, onFocus, focusTile } = useTileWalk(list, { grid, places, onToggle: toggle });
  const opened = useRef(openItem);
  useEffect(() => {
    const before = opened.current;
    opened.current = openItem;
    if (openItem !== null || before === null) return;
    // The large view may have gone on to an image far from the one that it was opened with.
    const index = places.findIndex((item) => item?.key === before);
    if (index >= 0) focusTile(index);
  });

  const shown = places.slice(grid.first, grid.end);
  return (
    <ul ref={list} className="gallery" aria-label="Images" style={{ height: grid.height }} onFocus={onFocus}>
      {shown.map((item, offset) => {
        const index = grid.first + offset;
        const place = placeOf(grid, index);
        const groupStart = index - (index % grid.group);
        const ofRow = item ?? places.slice(groupStart, groupStart + grid.group).find((each) => each !== null);
        const prompt = ofRow?.prompt ?? ofRow?.prompt_preview ?? "";
        const named = columns?.[index % columns.length] ?? null;
        const variant = named === null || grid.headHeight > 0 ? named : `${named} · ${prompt}`;
        return (
          <Fragment key={item?.key ?? `place ${index}`}>
            {grid.headHeight > 0 && index === groupStart && (
              <li
                className="row-head"
                style={{
                  transform: `translate(${place.x}px, ${place.y - grid.headHeight}px)`,
                  width: grid.group * grid.tileWidth,
                }}
              >
                <span dir="auto" title={prompt}>
                  {prompt}
                </span>
              </li>
            )}
            {item && (
              <Tile
                variant={variant}
                item={item}
                index={index}
                count={places.length}
                isTabStop={index === tabStop}
                isSelected={selected.has(item.key)}
                {...place}
                width={grid.tileWidth}
                onOpen={open}
                onToggle={toggle}
              />
            )}
          </Fragment>
        );
      })}
    </ul>
  );
}
