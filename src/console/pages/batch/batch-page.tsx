import { useDeferredValue, useMemo, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { getBatch } from "../../api/batches.ts";
import { ApiError } from "../../api/request.ts";
import { useData } from "../../hooks/use-data.ts";
import { useKeys } from "../../hooks/use-keys.ts";
import { go, hrefOf } from "../../hooks/use-route.ts";
import { EmptyNote, ErrorNote } from "../../parts/notes.tsx";
import { SearchField } from "../../parts/search-field.tsx";
import { count } from "../../parts/words.ts";
import { BatchHead } from "./batch-head.tsx";
import { Gallery } from "./gallery.tsx";
import { LargeView } from "./large-view.tsx";
import { SelectionBar } from "./selection-bar.tsx";
import { type Items, useItems } from "./use-items.ts";

/** One batch: what it is, and its pictures. `openItem` is shown large. */
export function BatchPage({ id, openItem }: { id: string; openItem: string | null }) {
  const items = useItems(id);
  const batch = useData(
    id,
    (signal) => getBatch(id, signal),
    (change) => (change.kind === "batch" || change.kind === "deleted") && change.id === id,
  );
  if (batch.error instanceof ApiError && batch.error.status === 404)
    return (
      <EmptyNote icon="batches" title="No such batch">
        <p className="quiet">It was deleted, or it belongs to another key.</p>
        <a className="button" href={hrefOf("batches")}>
          All batches
        </a>
      </EmptyNote>
    );
  return (
    <>
      <ErrorNote error={batch.error} />
      {batch.value && (
        <Loaded batch={batch.value} list={items} openItem={openItem} onChanged={batch.reload} />
      )}
    </>
  );
}

const KINDS = ["all", "success", "failed", "pending"] as const;
type Kind = (typeof KINDS)[number];

function Loaded(props: { batch: BatchObject; list: Items; openItem: string | null; onChanged: () => void }) {
  const { batch, list, openItem, onChanged } = props;
  const { items, isComplete, error, reload } = list;
  const [kind, setKind] = useState<Kind>("all");
  const [words, setWords] = useState("");
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const sought = useDeferredValue(words.trim().toLowerCase());
  const shown = useMemo(() => items.filter((item) => isSought(item, kind, sought)), [items, kind, sought]);
  const positions = useMemo(() => new Map(items.map(({ custom_id }, at) => [custom_id, at])), [items]);
  useKeys({
    Escape: () => {
      if (selected.size > 0) setSelected(new Set());
      else if (openItem === null) go(hrefOf("batches"));
    },
  });
  const show = (customId: string | null, replace = false) =>
    go(hrefOf("batches", batch.id, ...(customId === null ? [] : [customId])), { replace });
  const counts: Record<Kind, number> = {
    all: batch.item_count,
    success: batch.success_count,
    failed: batch.fail_count,
    pending: batch.pending_count,
  };
  const isGone = batch.status === "output_deleted";
  return (
    <>
      <BatchHead batch={batch} items={isComplete ? items : null} onChanged={onChanged} />
      <div className="tools">
        <fieldset className="tabs" aria-label="Show">
          {KINDS.filter((each) => each === "all" || counts[each] > 0).map((each) => (
            <button key={each} type="button" aria-pressed={kind === each} onClick={() => setKind(each)}>
              {each} <span className="of">{count(counts[each])}</span>
            </button>
          ))}
        </fieldset>
        <SearchField label="Search prompts" value={words} onChange={setWords} />
      </div>
      <ErrorNote error={error} />
      <Gallery
        batchId={batch.id}
        items={shown}
        positions={isTerminal(batch.status) ? positions : null}
        isGone={isGone}
        openItem={openItem}
        selected={selected}
        onSelect={setSelected}
        onOpen={show}
      />
      {shown.length === 0 && isComplete && <EmptyNote icon="search" title="No image like this" />}
      <SelectionBar
        batch={batch}
        items={items}
        selected={selected}
        onSelectAll={() => setSelected(new Set(shown.map(({ custom_id }) => custom_id)))}
        onClear={() => setSelected(new Set())}
        onChanged={reload}
      />
      {openItem !== null && isComplete && (
        <LargeView
          batch={batch}
          items={shown.some(({ custom_id }) => custom_id === openItem) ? shown : items}
          customId={openItem}
          onShow={(customId) => show(customId, true)}
          onClose={() => show(null, true)}
        />
      )}
    </>
  );
}

function isSought(item: ItemObject, kind: Kind, sought: string): boolean {
  if (kind !== "all" && item.status !== kind) return false;
  if (sought === "") return true;
  const texts = [item.custom_id, item.prompt ?? item.prompt_preview, item.error?.code, item.error?.message];
  return texts.some((text) => text?.toLowerCase().includes(sought));
}
