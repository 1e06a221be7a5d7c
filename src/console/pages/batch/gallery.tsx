import { useCallback, useEffect, useRef, useState } from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { Tile } from "./tile.tsx";
import { placeOf, useGrid } from "./use-grid.ts";
import { useTileWalk } from "./use-tile-walk.ts";

/** The pictures of a batch, of which only those near the window are in the page. */
export function Gallery(props: {
  batchId: string;
  items: readonly ItemObject[];
  /** The position of each item in its batch, by custom id; null while the batch may change. */
  positions: ReadonlyMap<string, number> | null;
  isGone: boolean;
  /** The image that is shown large; null: none. */
  openItem: string | null;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onOpen: (customId: string) => void;
}) {
  const { batchId, items, positions, isGone, openItem, selected, onSelect, onOpen } = props;
  const list = useRef<HTMLUListElement>(null);
  const grid = useGrid(list, items.length);
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
        return (
          <Tile
            key={item.custom_id}
            batchId={batchId}
            item={item}
            index={index}
            count={items.length}
            position={positions?.get(item.custom_id) ?? null}
            isGone={isGone}
            isTabStop={index === tabStop}
            isSelected={selected.has(item.custom_id)}
            {...placeOf(grid, index)}
            width={grid.tileWidth}
            onOpen={open}
            onToggle={toggle}
          />
        );
      })}
    </ul>
  );
}
