import {
  type FocusEvent,
  Fragment,
  memo,
  type RefObject,
  useCallback,
  useEffect,
  useRef,
  useState,
} from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { formatSize } from "../../../kernel/text.ts";
import { compareImages, variantByPrompt } from "../../../prompts/comparison.ts";
import { useKeys } from "../../parts/keys.tsx";
import { Icon } from "../../parts/notes.tsx";
import { RemotePicture, sheetAt, thumbnailPath } from "../../parts/pictures.tsx";
import { usd } from "../../parts/status.tsx";
import { type Grid, placeOf, useGrid } from "./grid.ts";
import { isDeleted } from "./images.ts";

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

interface TileProps {
  batchId: string;
  item: ItemObject;
  index: number;
  count: number;
  /** In its batch; null while that one may change. */
  position: number | null;
  /** Its pictures are deleted. */
  isGone: boolean;
  isSelected: boolean;
  isTabStop: boolean;
  x: number;
  y: number;
  width: number;
  /** Instead of the prompt, in a comparison. */
  variant: string | null;
  /** With its price below. */
  isPriced: boolean;
  onOpen: (customId: string) => void;
  onToggle: (index: number, isRange: boolean) => void;
}

/** One item of a batch: its picture or its state, and below what it is. */
const Tile = memo(function Tile(props: TileProps) {
  const { item, index, count, isSelected, isTabStop, x, y, width, variant, isPriced, onOpen, onToggle } =
    props;
  const { custom_id, status, error } = item;
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
        onClick={() => onOpen(custom_id)}
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
        <span className="tile-prompt" dir="auto" title={prompt}>
          {variant ?? prompt}
        </span>
        <span className={`tile-facts ${error ? "fails" : ""}`}>
          {error ? error.code : factsOf(item, isPriced)}
        </span>
      </div>
    </li>
  );
});

function TilePicture({ batchId, item, position, isGone, width }: TileProps) {
  const { custom_id, status, error } = item;
  if (status === "failed")
    return (
      <span className="tile-error">
        <Icon name="warning" />
        <span dir="auto">{error?.message}</span>
      </span>
    );
  if (status === "pending") return <span className="picture-waits" />;
  if (isGone || isDeleted(item)) return <span className="tile-gone">deleted</span>;
  const edge = width * devicePixelRatio > 300 ? 1024 : 256;
  const sheet = edge === 256 && position !== null ? sheetAt(batchId, position) : null;
  return <RemotePicture path={thumbnailPath(batchId, custom_id, edge)} sheet={sheet} alt="" />;
}

/** `1024 × 1024 · 1.4 MB`: what is known of an item's first image, or its id before there is one. With its price in a comparison. */
function factsOf({ images, custom_id, status, cost }: ItemObject, isPriced: boolean): string {
  const [image] = images ?? [];
  if (status === "pending") return custom_id;
  const price = isPriced && cost !== null ? [usd(cost)] : [];
  return image
    ? [`${image.width} × ${image.height}`, ...price, formatSize(image.size)].join(" · ")
    : price.join("");
}

/** The items of a batch whose prompts repeat with other options, row by row; null where there is nothing to compare. */
interface ComparedItems {
  columns: string[];
  items: ItemObject[];
}

export function compareItems(items: readonly ItemObject[]): ComparedItems | null {
  const images = items.map((item) => {
    const prompt = item.prompt ?? item.prompt_preview;
    return { item, prompt, variant: variantByPrompt(prompt, item.options ?? {}) };
  });
  const { columns, rows } = compareImages(images) ?? { columns: [], rows: [] };
  const cells = rows.flatMap((row) => row.cells);
  // The grid has no room for two pictures in a place, or for none.
  if (columns.length < 2 || cells.some((cell) => cell.length !== 1)) return null;
  return { columns, items: cells.flatMap((cell) => cell.map(({ item }) => item)) };
}

/** The pictures of a batch, of which only those near the window are in the page. */
export function Gallery(props: {
  batchId: string;
  /** In a comparison, row by row. */
  items: readonly ItemObject[];
  /** The variants of a comparison, a column each; null for a plain grid. */
  columns: readonly string[] | null;
  /** Its prices are no real money. */
  isPlay: boolean;
  /** The position of each item in its batch, by custom id; null while the batch may change. */
  positions: ReadonlyMap<string, number> | null;
  isGone: boolean;
  /** The image that is shown large; null: none. */
  openItem: string | null;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onOpen: (customId: string) => void;
}) {
  const { batchId, items, columns, isPlay, positions, isGone, openItem, selected, onSelect, onOpen } = props;
  const list = useRef<HTMLUListElement>(null);
  const grid = useGrid(list, items.length, columns?.length ?? null);
  const [lastToggled, setLastToggled] = useState(0);
  const latest = useRef({ items, selected, lastToggled, onSelect, onOpen });
  latest.current = { items, selected, lastToggled, onSelect, onOpen };

  const toggle = useCallback((index: number, isRange: boolean) => {
    const now = latest.current;
    const ends = isRange ? [now.lastToggled, index].sort((a, b) => a - b) : [index, index];
    const [from = index, to = index] = ends;
    const next = new Set(now.selected);
    const isOn = !now.selected.has(now.items[index]?.custom_id ?? "");
    for (const { custom_id } of now.items.slice(from, to + 1)) {
      if (isOn) next.add(custom_id);
      else next.delete(custom_id);
    }
    setLastToggled(index);
    now.onSelect(next);
  }, []);
  const open = useCallback((customId: string) => latest.current.onOpen(customId), []);

  const { tabStop, onFocus, focusTile } = useTileWalk(list, { grid, count: items.length, onToggle: toggle });
  const opened = useRef(openItem);
  useEffect(() => {
    const before = opened.current;
    opened.current = openItem;
    if (openItem !== null || before === null) return;
    // The large view may have gone on to an image far from the one that it was opened with.
    const index = items.findIndex(({ custom_id }) => custom_id === before);
    if (index >= 0) focusTile(index);
  });

  const shown = items.slice(grid.first, grid.end);
  return (
    <ul ref={list} className="gallery" aria-label="Images" style={{ height: grid.height }} onFocus={onFocus}>
      {shown.map((item, offset) => {
        const index = grid.first + offset;
        const place = placeOf(grid, index);
        const prompt = item.prompt ?? item.prompt_preview;
        const named = columns?.[index % columns.length] ?? null;
        const variant = named === null || grid.headHeight > 0 ? named : `${named} · ${prompt}`;
        return (
          <Fragment key={item.custom_id}>
            {grid.headHeight > 0 && index % grid.columns === 0 && (
              <li className="row-head" style={{ transform: `translateY(${place.y - grid.headHeight}px)` }}>
                <span dir="auto" title={prompt}>
                  {prompt}
                </span>
              </li>
            )}
            <Tile
              variant={variant}
              isPriced={variant !== null && !isPlay}
              batchId={batchId}
              item={item}
              index={index}
              count={items.length}
              position={positions?.get(item.custom_id) ?? null}
              isGone={isGone}
              isTabStop={index === tabStop}
              isSelected={selected.has(item.custom_id)}
              {...place}
              width={grid.tileWidth}
              onOpen={open}
              onToggle={toggle}
            />
          </Fragment>
        );
      })}
    </ul>
  );
}
