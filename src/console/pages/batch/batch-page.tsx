import { useDeferredValue, useMemo, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { saidLines } from "../../../contract/waiting.ts";
import { counted } from "../../../kernel/text.ts";
import { cancelBatch, getBatch } from "../../api/batches.ts";
import { ApiError } from "../../api/request.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { SearchField, useKeys } from "../../parts/keys.tsx";
import { go, hrefOf } from "../../parts/navigation.tsx";
import { announce, EmptyNote, ErrorNote, Icon, Problem } from "../../parts/notes.tsx";
import {
  ago,
  Counts,
  costOf,
  count,
  localTime,
  ProgressBar,
  StatusBadge,
  usd,
  waitingWords,
} from "../../parts/status.tsx";
import { useData } from "../../parts/use-data.ts";
import {
  countRefused,
  DeleteDialog,
  DownloadButton,
  RetryDialog,
  retriableOf,
  SelectionBar,
} from "./actions.tsx";
import { Gallery } from "./gallery.tsx";
import { LargeView } from "./large-view.tsx";
import { type Items, useItems } from "./use-items.ts";

type Question = "cancel" | "retry" | "delete";

interface BatchActionsProps {
  batch: BatchObject;
  /** Null before all of them are known. */
  items: ItemObject[] | null;
  onChanged: () => void;
}

/** The buttons for a batch in its status. */
function BatchActions({ batch, items, onChanged }: BatchActionsProps) {
  const [question, setQuestion] = useState<Question | null>(null);
  const close = () => setQuestion(null);
  const hasEnded = isTerminal(batch.status);
  const retriable = retriableOf(batch, items ?? []);
  return (
    <div className="actions">
      {hasEnded && batch.success_count > 0 && batch.status !== "output_deleted" && (
        <DownloadButton batch={batch} items={items} />
      )}
      {retriable.length > 0 && (
        <button type="button" className="button" onClick={() => setQuestion("retry")}>
          <Icon name="retry" /> Retry {count(retriable.length)}
          {retriable.length < batch.fail_count && ` of ${count(batch.fail_count)}`} failed
        </button>
      )}
      {hasEnded ? (
        <button type="button" className="button" onClick={() => setQuestion("delete")}>
          <Icon name="trash" /> Delete
        </button>
      ) : (
        <button type="button" className="button" onClick={() => setQuestion("cancel")}>
          <Icon name="stop" /> Cancel
        </button>
      )}
      {question === "cancel" && <CancelDialog batch={batch} onChanged={onChanged} onClose={close} />}
      {question === "retry" && (
        <RetryDialog batch={batch} items={retriable} leftOut={countRefused(items ?? [])} onClose={close} />
      )}
      {question === "delete" && <DeleteDialog batch={batch} onChanged={onChanged} onClose={close} />}
    </div>
  );
}

function CancelDialog(props: { batch: BatchObject; onChanged: () => void; onClose: () => void }) {
  const { batch, onChanged, onClose } = props;
  return (
    <ConfirmDialog
      title="Cancel this batch?"
      action="Cancel the batch"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        await cancelBatch(batch.id);
        announce("The batch is cancelled.");
        onChanged();
      }}
    >
      <p>
        {counted(batch.success_count, "finished image")} {batch.success_count === 1 ? "stays" : "stay"} and{" "}
        {batch.success_count === 1 ? "is" : "are"} paid. The rest of the hold goes back.
      </p>
    </ConfirmDialog>
  );
}

/** The facts of a batch as a whole, and what can be done with it. */
function BatchHead(props: BatchActionsProps) {
  const { batch } = props;
  const { status, waiting, error, parent_batch_id } = batch;
  const retries = new Set(
    props.items?.map(({ retried_in }) => retried_in).filter((id) => typeof id === "string"),
  );
  return (
    <section className="batch-head" aria-label="Batch">
      <a className="back" href={hrefOf("batches")}>
        Batches
      </a>
      <div className="page-head">
        <h1 dir="auto">{batch.task_name}</h1>
        <BatchActions {...props} />
      </div>
      <div className="batch-line" role="status">
        <StatusBadge status={status} />
        <Counts batch={batch} />
        <ProgressBar batch={batch} />
      </div>
      {batch.queued_behind !== null && batch.queued_behind > 0 && (
        <p className="note warn">
          It waits for {counted(batch.queued_behind, "other batch", "other batches")} before it.
        </p>
      )}
      {waiting && !isTerminal(status) && (
        <>
          <p className="note warn">{waitingWords(waiting)}</p>
          {saidLines(waiting.said).map((line) => (
            <p key={line} className="quiet small-text">
              {line}
            </p>
          ))}
        </>
      )}
      {error && (
        <p className="note bad">
          <Problem message={error.message} code={error.code} />
        </p>
      )}
      <dl className="facts">
        <Fact label="cost">
          {batch.actual_cost !== null || batch.play_money
            ? costOf(batch.actual_cost ?? 0, batch.play_money)
            : `about ${usd(batch.estimated_cost, "limit")}, ${usd(batch.hold_amount, "limit")} held`}
        </Fact>
        <Fact label="model">{batch.model}</Fact>
        {batch.provider && <Fact label="made by">{batch.provider}</Fact>}
        <Fact label="created">
          <span title={localTime(batch.created_at)}>{ago(batch.created_at)}</span>
        </Fact>
        {batch.expires_at !== null && status !== "output_deleted" && (
          <Fact label="images kept until">{localTime(batch.expires_at)}</Fact>
        )}
        {parent_batch_id && (
          <Fact label="retries">
            <a href={hrefOf("batches", parent_batch_id)}>an earlier batch</a>
          </Fact>
        )}
        {[...retries].map((id) => (
          <Fact key={id} label="retried in">
            <a href={hrefOf("batches", id)}>a later batch</a>
          </Fact>
        ))}
        <Fact label="id">
          <code>{batch.id}</code>
        </Fact>
      </dl>
    </section>
  );
}

function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

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
