import { useState } from "react";
import type { BatchObject } from "../../../contract/batch-api.ts";
import { BATCH_STATUSES } from "../../../contract/statuses.ts";
import { type BatchFilter, listBatches } from "../../api/batches.ts";
import { useData } from "../../hooks/use-data.ts";
import { useDebounced } from "../../hooks/use-debounced.ts";
import { useFocusWalk } from "../../hooks/use-focus-walk.ts";
import { hrefOf } from "../../hooks/use-route.ts";
import { EmptyNote, ErrorNote } from "../../parts/notes.tsx";
import { SearchField } from "../../parts/search-field.tsx";
import { statusWord } from "../../parts/words.ts";
import { BatchRow } from "./batch-row.tsx";

const PAGE = 50;

/** All batches of the key, the newest first. */
export function BatchesPage() {
  const [status, setStatus] = useState("");
  const [name, setName] = useState("");
  const [pages, setPages] = useState(1);
  const filter = { status, taskName: useDebounced(name.trim()) };
  const list = useData(
    JSON.stringify(filter),
    (signal) => readPages(filter, pages, signal),
    (change) => change.kind === "batch" || change.kind === "deleted",
    pages,
  );
  useFocusWalk("a.batch-row");
  const batches = list.value?.batches;
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
            <BatchRow key={batch.id} batch={batch} />
          ))}
        </ul>
      )}
      {batches?.length === 0 && <Nothing isFiltered={status !== "" || name !== ""} />}
      {list.value?.hasMore && (
        <button type="button" className="button more" onClick={() => setPages(pages + 1)}>
          Show more
        </button>
      )}
    </>
  );
}

async function readPages(filter: BatchFilter, pages: number, signal: AbortSignal) {
  const batches: BatchObject[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < pages; page++) {
    const list = await listBatches(filter, PAGE, signal, cursor ?? undefined);
    batches.push(...list.data);
    cursor = list.next_cursor;
    if (!list.has_more || cursor === null) return { batches, hasMore: false };
  }
  return { batches, hasMore: true };
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
