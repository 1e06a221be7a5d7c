import {
  type FocusEvent,
  Fragment,
  memo,
  type ReactNode,
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { useKeys } from "../../parts/keys.tsx";

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
const LEAST_TILE = 216;
const EXTRA_ROWS = 2;
const ROW_HEAD = 34;
/** The least and the largest tile of a comparison, and the one from which on a line has room for several prompts. */
const LEAST_COMPARED = 96;
const MOST_COMPARED = 480;
const GOOD_COMPARED = 216;
/** Between the prompts of a line, besides the gap. */
const GROUP_GAP = 26;

/** Which tiles of a long grid to draw: those that the window shows, and some more above and below. */
function useGrid(
  container: RefObject<HTMLElement | null>,
  count: number,
  compared: number | null,
  leastTile: number,
): Grid {
  const [view, setView] = useState<View>({ shape: shapeOf(0, null, leastTile), firstRow: 0, endRow: 0 });
  useLayoutEffect(() => {
    const element = container.current;
    if (!element) return;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const { width, top } = element.getBoundingClientRect();
      const next = viewOf(shapeOf(width, compared, leastTile), -top, innerHeight);
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
  }, [container, compared, leastTile]);
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
function shapeOf(width: number, compared: number | null, leastTile: number): Shape {
  const least = width < NARROW ? 150 : leastTile;
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

/** Lets the keys of a gallery move the focus from tile to tile, and act on the tile that has it. */
function useTileWalk<T extends Keyed>(
  list: RefObject<HTMLElement | null>,
  {
    grid,
    places,
    onToggle,
    acts,
  }: {
    grid: Grid;
    places: readonly (T | null)[];
    /** Called to select an item or take it out of the selection. Null where nothing can be selected: then letters are keys of `acts`. */
    onToggle: ((index: number, isRange: boolean) => void) | null;
    acts: TileActs<T>;
  },
): TileWalk {
  const [last, setLast] = useState(0);
  /** The key of the tile that gets the focus as soon as it is drawn. */
  const wanted = useRef<string | null>(null);
  const taken = (from: number, step: 1 | -1) => {
    let index = Math.min(places.length - 1, Math.max(0, from));
    while (places[index] === null) index += step;
    return places[index] ? index : null;
  };
  const tabStop = last >= grid.first && last < grid.end ? last : (taken(grid.first, 1) ?? grid.first);

  const focusWanted = () => {
    const index = places.findIndex((item) => item?.key === wanted.current);
    list.current?.querySelector<HTMLElement>(`[data-index="${index}"]`)?.focus({ preventScroll: true });
  };
  // A tile that is far away is drawn only after the page was scrolled to it.
  useEffect(() => {
    if (wanted.current !== null) focusWanted();
  });
  const focusTile = (index: number, step: 1 | -1 = 1) => {
    // A comparison has places without an image.
    const found = taken(index, step) ?? taken(index, step === 1 ? -1 : 1);
    wanted.current = found === null ? null : (places[found]?.key ?? null);
    if (found === null) return;
    showTile(list.current, placeOf(grid, found).y, grid.rowHeight);
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
  const toggle = onToggle && atTile((index, event) => onToggle(index, event.shiftKey));
  const actOf = (act: TileActs<T>[string]) =>
    atTile((index) => {
      const item = places[index];
      if (!item || !act(item)) return;
      focusTile(index < places.length - 1 ? index + 1 : index - 1, index < places.length - 1 ? 1 : -1);
    });
  useKeys({
    ...(toggle && { j: byOrEnter(1), k: byOrEnter(-1), x: toggle, " ": toggle }),
    ...Object.fromEntries(Object.entries(acts).map(([key, act]) => [key, actOf(act)])),
    ArrowRight: by(1),
    ArrowLeft: by(-1),
    ArrowDown: by(grid.columns),
    ArrowUp: by(-grid.columns),
    PageDown: by(page),
    PageUp: by(-page),
    Home: atTile(() => focusTile(0)),
    End: atTile(() => focusTile(places.length - 1, -1)),
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

interface TileProps<T extends Keyed> {
  item: T;
  describe: DescribeTile<T>;
  index: number;
  count: number;
  isSelected: boolean;
  isTabStop: boolean;
  x: number;
  y: number;
  width: number;
  /** Of a comparison; null elsewhere. */
  variant: string | null;
  onOpen: (key: string) => void;
  onToggle: ((index: number, isRange: boolean) => void) | null;
}

/** One item: its picture or its state, and below what it is. */
function PlainTile<T extends Keyed>(props: TileProps<T>) {
  const { item, describe, index, count, isSelected, isTabStop, x, y, width, variant, onOpen, onToggle } =
    props;
  const { className, label, picture, name, text, prompt, isFailed } = describe(item, width, variant);
  return (
    <li
      className={`tile ${className} ${isSelected ? "selected" : ""}`}
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
        aria-label={label}
        onClick={() => onOpen(item.key)}
        // The space bar selects. In Firefox it would press the button, too.
        onKeyUp={(event) => event.key === " " && onToggle && event.preventDefault()}
      >
        {picture}
      </button>
      {onToggle && (
        <label className="tile-check">
          <input
            type="checkbox"
            checked={isSelected}
            tabIndex={isTabStop ? 0 : -1}
            aria-label={`Select ${name}`}
            onChange={(event) => onToggle(index, (event.nativeEvent as MouseEvent).shiftKey)}
          />
        </label>
      )}
      <div className="tile-text">
        <span className="tile-id" dir="auto" title={variant ?? name}>
          {variant ?? name}
        </span>
        <span className={`tile-facts ${isFailed ? "fails" : ""}`} dir="auto" title={prompt}>
          {text}
        </span>
      </div>
    </li>
  );
}

const Tile = memo(PlainTile) as typeof PlainTile;

/** What a gallery needs to know of its items. */
interface Keyed {
  /** Names the item on the page. */
  key: string;
}

/** An item as its tile shows it. */
export interface TileView {
  /** For the style sheet. */
  className: string;
  /** For those who do not see it. */
  label: string;
  picture: ReactNode;
  /** The first line below the picture; in a comparison, the variant is. */
  name: string;
  /** The second line. */
  text: string;
  prompt: string;
  isFailed: boolean;
}

/** Describes a tile that is `width` pixels wide. A function of the module: another one draws every tile again. */
type DescribeTile<T> = (item: T, width: number, variant: string | null) => TileView;

/**
 * What keys do with the item that has the focus, by `KeyboardEvent.key`. The function of a key returns whether the focus moves to
 * the next item.
 */
type TileActs<T> = Readonly<Record<string, (item: T) => boolean>>;

const NO_ACTS = {};
const NOTHING: ReadonlySet<string> = new Set();

/** The pictures of a page, of which only those near the window are in it. */
export function Gallery<T extends Keyed>(props: {
  /** In a comparison, row by row. */
  places: readonly (T | null)[];
  describe: DescribeTile<T>;
  /** The variants of a comparison, a column each; null for a plain grid. */
  columns: readonly string[] | null;
  /** How wide a tile is at least, in pixels, unless the window is narrow. */
  leastTile?: number;
  /** The key of the image that is shown large; null: none. */
  openItem: string | null;
  /** By key. */
  selected?: ReadonlySet<string>;
  /** Default: nothing can be selected, and only the arrow keys move. */
  onSelect?: (selected: ReadonlySet<string>) => void;
  acts?: TileActs<T>;
  onOpen: (key: string) => void;
}) {
  const {
    places,
    describe,
    columns,
    leastTile = LEAST_TILE,
    openItem,
    selected = NOTHING,
    onSelect,
    acts = NO_ACTS,
    onOpen,
  } = props;
  const list = useRef<HTMLUListElement>(null);
  const grid = useGrid(list, places.length, columns?.length ?? null, leastTile);
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
    now.onSelect?.(next);
  }, []);
  const onToggle = onSelect === undefined ? null : toggle;
  const open = useCallback((key: string) => latest.current.onOpen(key), []);

  const { tabStop, onFocus, focusTile } = useTileWalk(list, { grid, places, onToggle, acts });
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
        const prompt = columns && ofRow ? describe(ofRow, 0, null).prompt : "";
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
                describe={describe}
                index={index}
                count={places.length}
                isTabStop={index === tabStop}
                isSelected={selected.has(item.key)}
                {...place}
                width={grid.tileWidth}
                onOpen={open}
                onToggle={onToggle}
              />
            )}
          </Fragment>
        );
      })}
    </ul>
  );
}
