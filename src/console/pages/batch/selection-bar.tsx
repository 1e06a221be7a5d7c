import { useState } from "react";
import type { BatchObject } from "../../../contract/batch-api/batches.ts";
import type { ItemObject } from "../../../contract/batch-api/items.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { announce } from "../../parts/announcer.tsx";
import { Icon } from "../../parts/icons.tsx";
import { saveImages } from "./save-images.ts";

/** The buttons for the selected images. Absent while none is selected. */
export function SelectionBar(props: {
  batch: BatchObject;
  items: readonly ItemObject[];
  selected: ReadonlySet<string>;
  onSelectAll: () => void;
  onClear: () => void;
}) {
  const { batch, items, selected, onSelectAll, onClear } = props;
  const [done, setDone] = useState<number | null>(null);
  if (selected.size === 0) return null;
  const images = items.filter((item) => selected.has(item.custom_id) && item.status === "success");
  const canSave = isTerminal(batch.status) && batch.status !== "output_deleted" && images.length > 0;
  const save = async () => {
    setDone(0);
    try {
      await saveImages(batch.id, images, setDone);
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setDone(null);
    }
  };
  return (
    <section className="selection" aria-label="Selected images">
      <b>{selected.size} selected</b>
      <button type="button" className="button plain" onClick={onSelectAll}>
        All
      </button>
      <button type="button" className="button plain" onClick={onClear}>
        Clear
      </button>
      <button type="button" className="button primary" disabled={!canSave || done !== null} onClick={save}>
        <Icon name="download" />
        {done === null ? `Download ${images.length}` : `${done} of ${images.length}`}
      </button>
    </section>
  );
}
