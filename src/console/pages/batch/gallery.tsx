import { useCallback, useRef, useState } from "react";
import type { ItemObject } from "../../../contract/batch-api/items.ts";
import { useKeys } from "../../hooks/use-keys.ts";
import { Tile } from "./tile.tsx";
import { placeOf, useGrid } from "./use-grid.ts";

/** The pictures of a batch, of which only those near the window are in the page. */
export function Gallery(props: {
  batchId: string;
  items: readonly ItemObject[];
  isGone: boolean;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onOpen: (customId: string) => void;
}) {
  const { batchId, items, isGone, selected, onSelect, onOpen } = props;
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

  const focusedIndex = () => {
    const index = (document.activeElement as HTMLElement | null)?.dataset.index;
    return index === undefined ? null : Number(index);
  };
  const walk = (step: number) => (event: KeyboardEvent) => {
    const at = focusedIndex();
    const next = at === null ? grid.first : Math.min(items.length - 1, Math.max(0, at + step));
    event.preventDefault();
    showTile(list.current, placeOf(grid, next).y, grid.rowHeight);
    // A tile that was far away is drawn with the next frame.
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        list.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus({ preventScroll: true }),
      ),
    );
  };
  useKeys({
    j: walk(1),
    k: walk(-1),
    x: () => {
      const index = focusedIndex();
      if (index !== null) toggle(index, false);
    },
  });

  const shown = items.slice(grid.first, grid.end);
  return (
    <ul ref={list} className="gallery" aria-label="Images" style={{ height: grid.height }}>
      {shown.map((item, offset) => {
        const index = grid.first + offset;
        return (
          <Tile
            key={item.custom_id}
            batchId={batchId}
            item={item}
            index={index}
            count={items.length}
            isGone={isGone}
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

/** Room for the bars above and below the gallery. */
const MARGIN = 90;

function showTile(list: HTMLElement | null, y: number, rowHeight: number): void {
  const top = (list?.getBoundingClientRect().top ?? 0) + y;
  if (top < MARGIN) scrollBy(0, top - MARGIN);
  else if (top + rowHeight > innerHeight - MARGIN) scrollBy(0, top + rowHeight - innerHeight + MARGIN);
}
