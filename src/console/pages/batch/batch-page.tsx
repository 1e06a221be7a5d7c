import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { saidLines } from "../../../contract/waiting.ts";
import { counted } from "../../../kernel/text.ts";
import { getBatch, listItems } from "../../api/batches.ts";
import { onChange } from "../../api/changes.ts";
import { ApiError, sleep } from "../../api/request.ts";
import { SearchField, useKeys } from "../../parts/keys.tsx";
import { EmptyNote, ErrorNote, Problem } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/route.ts";
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
import { BatchActions, type BatchActionsProps, SelectionBar } from "./actions.tsx";
import { compareItems, Gallery } from "./gallery.tsx";
import { LargeView } from "./large-view.tsx";

interface Items {
  /** In request order, as far as they are read. */
  items: ItemObject[];
  /** All are read. */
  isComplete: boolean;
  error: Error | null;
  /** Reads all of them again. */
  reload: () => void;
}

interface Page {
  cursor: string | null;
  items: ItemObject[];
}

/** Pages are read again after a change at most this often. */
const LEAST_GAP_MS = 900;
const NOTHING = { items: [] as ItemObject[], isComplete: false, error: null as Error | null };

/** The items of a batch, page by page. After a change only the pages that it touches are read again. */
function useItems(batchId: string): Items {
  const [state, setState] = useState(NOTHING);
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    const pages: Page[] = [{ cursor: null, items: [] }];
    const stale = new Set([0]);
    let isComplete = false;
    let isReading = false;

    const readPage = async (index: number) => {
      const page = pages[index];
      if (!page) return;
      const { data, has_more, next_cursor } = await listItems(batchId, page.cursor, stop.signal);
      pages[index] = { ...page, items: data };
      const isLast = index === pages.length - 1;
      if (isLast && has_more) {
        pages.push({ cursor: next_cursor, items: [] });
        stale.add(index + 1);
      }
      if (isLast) isComplete = !has_more;
    };
    const readStale = async () => {
      if (isReading) return;
      isReading = true;
      while (stale.size > 0 && !stop.signal.aborted) {
        const wasComplete = isComplete;
        const round = [...stale];
        stale.clear();
        let error: Error | null = null;
        try {
          for (const index of round) await readPage(index);
        } catch (thrown) {
          error = thrown as Error;
        }
        if (stop.signal.aborted) return;
        setState((old) => ({
          items: error ? old.items : pages.flatMap(({ items }) => items),
          isComplete,
          error,
        }));
        if (wasComplete || error) await sleep(LEAST_GAP_MS, stop.signal).catch(() => {});
      }
      isReading = false;
    };
    again.current = () => {
      for (const index of pages.keys()) stale.add(index);
      void readStale();
    };
    void readStale();
    const unsubscribe = onChange((change) => {
      if (change.kind !== "all" && !(change.kind === "batch" && change.id === batchId)) return;
      for (const index of changedPages(pages, change.kind === "all" ? null : change.items)) stale.add(index);
      void readStale();
    });
    return () => {
      stop.abort();
      unsubscribe();
    };
  }, [batchId]);
  return { ...state, reload: () => again.current() };
}

/** The pages with changed items. Null: any that is not finished. New items come at the end. */
function changedPages(pages: readonly Page[], changed: string[] | null): number[] {
  const last = pages.length - 1;
  const ids = changed === null ? null : new Set(changed);
  if (ids?.size === 0) return [];
  const isTouched = ({ items }: Page) =>
    items.some(({ custom_id, status }) => (ids === null ? status === "pending" : ids.has(custom_id)));
  const touched = [...pages.keys()].filter((index) => isTouched(pages[index] as Page));
  if (ids === null) return [...new Set([...touched, last])];
  return touched.length === 0 ? [last] : touched;
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
            : `about ${usd(batch.estimated_cost, "limit")}, ${usd(batch.hold_amount, "limit")} reserved`}
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
  // What is filtered compares nothing any more.
  const compared = useMemo(
    () => (isComplete && kind === "all" && sought === "" ? compareItems(items) : null),
    [items, isComplete, kind, sought],
  );
  const listed = compared?.items ?? shown;
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
        items={listed}
        columns={compared?.columns ?? null}
        isPlay={batch.play_money}
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
          items={listed.some(({ custom_id }) => custom_id === openItem) ? listed : items}
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
