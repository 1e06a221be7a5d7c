import { useEffect, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { counted } from "../../../kernel/text.ts";
import { deleteImages } from "../../api/batches.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { Icon } from "../../parts/icons.tsx";
import { announce } from "../../parts/notes.tsx";
import { count } from "../../parts/status.tsx";
import { useLimits } from "../../parts/use-data.ts";
import { hasImages } from "./item-facts.ts";
import { countRefused, RetryDialog, retriableOf } from "./retry-dialog.tsx";
import { saveImages } from "./save-images.ts";

interface SelectionBarProps {
  batch: BatchObject;
  items: readonly ItemObject[];
  selected: ReadonlySet<string>;
  onSelectAll: () => void;
  onClear: () => void;
  /** Images were deleted. */
  onChanged: () => void;
}

/** The buttons for the selected images. Absent while none is selected. */
export function SelectionBar(props: SelectionBarProps) {
  return props.selected.size === 0 ? null : <Buttons {...props} />;
}

function Buttons(props: SelectionBarProps) {
  const { batch, items, selected, onSelectAll, onClear, onChanged } = props;
  const [question, setQuestion] = useState<"retry" | "delete" | null>(null);
  useEffect(
    () => () => {
      if (document.activeElement === document.body) document.getElementById("main")?.focus();
    },
    [],
  );
  const chosen = items.filter(({ custom_id }) => selected.has(custom_id));
  const isThere = isTerminal(batch.status) && batch.status !== "output_deleted";
  const images = isThere ? chosen.filter(hasImages) : [];
  const retriable = retriableOf(batch, chosen);
  const close = () => setQuestion(null);
  return (
    <>
      <section className="selection" aria-label="Selected images">
        <b>{count(selected.size)} selected</b>
        <button type="button" className="button plain" onClick={onSelectAll}>
          All
        </button>
        <button type="button" className="button plain" onClick={onClear}>
          Clear
        </button>
        {(images.length > 0 || retriable.length === 0) && <SaveButton batch={batch} images={images} />}
        {retriable.length > 0 && (
          <button type="button" className="button" onClick={() => setQuestion("retry")}>
            <Icon name="retry" /> Retry {count(retriable.length)}
          </button>
        )}
        {images.length > 0 && batch.source === "batch" && (
          <button type="button" className="button" onClick={() => setQuestion("delete")}>
            <Icon name="trash" /> Delete {count(images.length)}
          </button>
        )}
      </section>
      {question === "retry" && (
        <RetryDialog batch={batch} items={retriable} leftOut={countRefused(chosen)} onClose={close} />
      )}
      {question === "delete" && (
        <ConfirmDialog
          title={`Delete ${counted(images.length, "image")}?`}
          action="Delete"
          isDangerous
          onClose={close}
          onConfirm={async () => {
            try {
              for (const { custom_id } of images) await deleteImages(batch.id, custom_id);
            } finally {
              onChanged();
            }
            announce("Deleted.");
            onClear();
          }}
        >
          <p>The files are deleted from the service. This cannot be undone, and what was paid stays paid.</p>
        </ConfirmDialog>
      )}
    </>
  );
}

function SaveButton({ batch, images }: { batch: BatchObject; images: ItemObject[] }) {
  const { zipItems } = useLimits();
  const [done, setDone] = useState<number | null>(null);
  const save = async () => {
    setDone(0);
    try {
      await saveImages(batch.id, images, { zipItems, onDone: setDone });
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setDone(null);
    }
  };
  return (
    <button
      type="button"
      className="button primary"
      disabled={images.length === 0 || done !== null}
      onClick={save}
    >
      <Icon name="download" />
      {done === null ? `Download ${count(images.length)}` : `${count(done)} of ${count(images.length)}`}
    </button>
  );
}
