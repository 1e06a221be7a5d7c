import { memo } from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { sheetAt, thumbnailPath } from "../../api/thumbnails.ts";
import { Icon } from "../../parts/icons.tsx";
import { RemotePicture } from "../../parts/picture.tsx";
import { factsOf, isDeleted } from "./item-facts.ts";

export interface TileProps {
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
  onOpen: (customId: string) => void;
  onToggle: (index: number, isRange: boolean) => void;
}

/** One item of a batch: its picture or its state, and below what it is. */
export const Tile = memo(function Tile(props: TileProps) {
  const { item, index, count, isSelected, isTabStop, x, y, width, onOpen, onToggle } = props;
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
          {prompt}
        </span>
        <span className={`tile-facts ${error ? "fails" : ""}`}>{error ? error.code : factsOf(item)}</span>
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
