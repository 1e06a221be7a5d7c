import { type RefObject, useEffect, useRef, useState } from "react";
import type { BatchObject } from "../../contract/batch-api.ts";
import { BATCH_STATUSES, isTerminal } from "../../contract/statuses.ts";
import { FREE_DRAWINGS } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import { firstImages, listBatches } from "../api/batches.ts";
import { SearchField, useKeys } from "../parts/keys.tsx";
import { EmptyNote, ErrorNote } from "../parts/notes.tsx";
import { RemotePicture, thumbnailPath } from "../parts/pictures.tsx";
import { batchesHref, go, hrefOf } from "../parts/route.ts";
import {
  ago,
  asOne,
  Counts,
  count,
  localTime,
  ProgressBar,
  StatusBadge,
  statusWord,
  usd,
  waitingWords,
} from "../parts/status.tsx";
import { useData } from "../parts/use-data.ts";

function BatchRow(props: { batch: BatchObject; isSelected: boolean; onToggle: (id: string) => void }) {
  const { batch, isSelected, onToggle } = props;
  const { id, task_name, model, created_at, parent_batch_id, retries = [] } = batch;
  const row = useRef<HTMLLIElement>(null);
  const isVisible = useVisible(row);
  const whole = asOne([batch]);
  const waiting = [batch, ...retries].find((each) => each.waiting && !isTerminal(each.status))?.waiting;
  return (
    <li ref={row} className={isSelected ? "selected" : ""}>
      <label className="batch-check">
        <input
          type="checkbox"
          checked={isSelected}
          aria-label={`Select ${task_name}, ${model}`}
          onChange={() => onToggle(id)}
        />
      </label>
      <a className="batch-row" href={hrefOf("batches", id)} data-id={id}>
        <span className="strip">{isVisible && <Strip batch={batch} />}</span>
        <span className="batch-name">
          <b dir="auto">{task_name}</b>
          <span className="quiet">
            {parent_batch_id !== null && "retry · "}
            {retries.length > 0 && `${counted(retries.length, "retry", "retries")} · `}
            {waiting ? waitingWords(waiting) : model}
          </span>
        </span>
        <span className="batch-state">
          <StatusBadge status={whole.status} />
          <Counts batch={whole} />
          <ProgressBar batch={whole} />
        </span>
        <span className="batch-cost">
          {whole.play_money ? (
            <span className="quiet">{FREE_DRAWINGS}</span>
          ) : (
            <>
              <b>
                {whole.actual_cost === null
                  ? usd(whole.estimated_cost, "limit")
                  : usd(whole.actual_cost, "sum")}
              </b>
              <span className="quiet">
                {whole.actual_cost === null ? `${usd(whole.hold_amount, "limit")} held` : "paid"}
              </span>
            </>
          )}
        </span>
        <time
          className="batch-age quiet"
          dateTime={new Date(created_at * 1000).toISOString()}
          title={localTime(created_at)}
        >
          {ago(created_at)}
        </time>
      </a>
    </li>
  );
}

const SHOWN = innerWidth > 1800 ? 8 : 4;

/** The first images of a batch, small. */
function Strip({ batch: first }: { batch: BatchObject }) {
  const { retries = [] } = first;
  const batch = [first, ...retries].find(({ success_count }) => success_count > 0) ?? first;
  const shown = batch.status === "output_deleted" ? 0 : Math.min(SHOWN, batch.success_count);
  const images = useData(`${batch.id} ${shown}`, async (signal) =>
    shown === 0 ? [] : await firstImages(batch.id, shown, signal),
  );
  return (images.value ?? []).map(({ custom_id }) => (
    <RemotePicture key={custom_id} path={thumbnailPath(batch.id, custom_id, 256)} alt="" />
  ));
}

/** All batches of the key, the newest first. */
export function BatchesPage() {
  const [status, setStatus] = useState("");
  const [name, setName] = useState("");
  const [pages, setPages] = useState(1);
  const [selected, setSelected] = useState<readonly string[]>([]);
  const filter = { status, taskName: useDebounced(name.trim()) };
  const list = useData(
    JSON.stringify(filter),
    (signal) => listBatches(filter, pages, signal),
    (change) => change.kind === "batch" || change.kind === "deleted",
    pages,
  );
  useFocusWalk("a.batch-row");
  const toggle = (id: string) =>
    setSelected((old) => (old.includes(id) ? old.filter((each) => each !== id) : [...old, id]));
  useKeys({
    x: () => {
      const { id } = (document.activeElement as HTMLElement | null)?.dataset ?? {};
      if (id !== undefined) toggle(id);
    },
    c: () => {
      if (selected.length > 1) go(batchesHref(selected));
    },
    Escape: () => setSelected([]),
  });
  const batches = list.value?.entries;
  return (
    <>
      <div className="page-head">
        <h1>Batches</h1>
        <a className="button primary" href={hrefOf("new")}>
          New batch
        </a>
      </div>
      <div className="tools">
        <SearchField label="Search by name" value={name} onChange={setName} />
        <select aria-label="Status" value={status} onChange={(event) => setStatus(event.target.value)}>
          <option value="">any status</option>
          {BATCH_STATUSES.map((each) => (
            <option key={each} value={each}>
              {statusWord(each)}
            </option>
          ))}
        </select>
      </div>
      <ErrorNote error={list.error} />
      {batches && batches.length > 0 && (
        <ul className="batch-list">
          {batches.map((batch) => (
            <BatchRow
              key={batch.id}
              batch={batch}
              isSelected={selected.includes(batch.id)}
              onToggle={toggle}
            />
          ))}
        </ul>
      )}
      {batches?.length === 0 && <Nothing isFiltered={status !== "" || name !== ""} />}
      {list.value?.hasMore && (
        <button type="button" className="button more" onClick={() => setPages(pages + 1)}>
          Show more
        </button>
      )}
      {selected.length > 0 && (
        <section className="selection" aria-label="Selected batches">
          <b>{count(selected.length)} selected</b>
          <button type="button" className="button plain" onClick={() => setSelected([])}>
            Clear
          </button>
          <button
            type="button"
            className="button primary"
            disabled={selected.length < 2}
            onClick={() => go(batchesHref(selected))}
          >
            {selected.length < 2 ? "Compare: select another one" : "Compare"}
          </button>
        </section>
      )}
    </>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyNote icon="search" title="No batch like this" />;
  return (
    <EmptyNote icon="batches" title="No batches yet">
      <p className="quiet">A batch makes many images from a file of prompts.</p>
      <a className="button primary" href={hrefOf("new")}>
        Make the first one
      </a>
    </EmptyNote>
  );
}

const QUIET_MS = 250;

/** The value, once it has not changed for a moment: a person may still be typing. */
function useDebounced<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), QUIET_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** Whether an element has been near the window yet: what is far below need not be fetched. */
function useVisible(element: RefObject<HTMLElement | null>): boolean {
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    if (isVisible || element.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) setVisible(true);
      },
      { rootMargin: "200px" },
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element, isVisible]);
  return isVisible;
}

/**
 * Lets `j` and `k` move the focus over the elements of a list that match a selector. The arrow keys do so once one of
 * them has the focus.
 */
function useFocusWalk(selector: string): void {
  const walk =
    (step: number, mustBeThere = false) =>
    (event: KeyboardEvent) => {
      const elements = [...document.querySelectorAll<HTMLElement>(selector)];
      const at = elements.indexOf(document.activeElement as HTMLElement);
      if (at < 0 && mustBeThere) return;
      const next = elements[at < 0 ? 0 : Math.min(elements.length - 1, Math.max(0, at + step))];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    };
  useKeys({ j: walk(1), k: walk(-1), ArrowDown: walk(1, true), ArrowUp: walk(-1, true) });
}
