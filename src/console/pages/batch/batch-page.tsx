import { type ReactNode, useDeferredValue, useMemo, useState } from "react";
import type { BatchObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { saidLines } from "../../../contract/waiting.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import { counted } from "../../../kernel/text.ts";
import { compareImages, variantByPrompt } from "../../../prompts/comparison.ts";
import { listBatches } from "../../api/batches.ts";
import { ApiError } from "../../api/request.ts";
import { SearchField, useKeys } from "../../parts/keys.tsx";
import { EmptyNote, ErrorNote, Icon, Problem } from "../../parts/notes.tsx";
import { RemotePicture, sheetAt, thumbnailPath } from "../../parts/pictures.tsx";
import { batchesHref, go, hrefOf } from "../../parts/route.ts";
import {
  ago,
  asOne,
  Counts,
  costOf,
  count,
  localTime,
  ProgressBar,
  StatusBadge,
  usd,
  type WholeBatch,
  waitingWords,
} from "../../parts/status.tsx";
import { useData } from "../../parts/use-data.ts";
import { BatchActions, type BatchActionsProps, SelectionBar } from "./actions.tsx";
import { Gallery, type TileView } from "./gallery.tsx";
import { isDeleted, runName } from "./images.ts";
import { LargeView } from "./large-view.tsx";
import { membersOf, type PlacedItem, useBatches, useItems } from "./use-items.ts";

/** The facts of the batches of the page as a whole, and what can be done with them. */
function BatchHead(props: BatchActionsProps & { whole: WholeBatch }) {
  const { batches, whole } = props;
  const [first] = batches;
  const members = batches.flatMap(membersOf);
  const models = [...new Set(batches.map(({ model }) => model))];
  const makers = [...new Set(members.flatMap(({ provider }) => provider ?? []))];
  const expiries = members.flatMap((each) =>
    each.expires_at === null || each.status === "output_deleted" ? [] : [each.expires_at],
  );
  if (!first) return null;
  const names = [
    ...new Set(batches.map(({ task_name }) => (batches.length > 1 ? runName(task_name) : task_name))),
  ];
  return (
    <section className="batch-head" aria-label="Batch">
      <a className="back" href={hrefOf("batches")}>
        Batches
      </a>
      <div className="page-head">
        <h1 dir="auto">{names.join(", ")}</h1>
        <BatchActions {...props} />
      </div>
      <div className="batch-line" role="status">
        <StatusBadge status={whole.status} />
        <Counts batch={whole} />
        <ProgressBar batch={whole} />
      </div>
      {members.map((batch) => (
        <Troubles key={batch.id} batch={batch} />
      ))}
      <dl className="facts">
        <Fact label="cost">{costOfAll(whole)}</Fact>
        <Fact label={models.length === 1 ? "model" : "models"}>{models.join(", ")}</Fact>
        {makers.length > 0 && <Fact label="made by">{makers.join(", ")}</Fact>}
        <Fact label="created">
          <span title={localTime(first.created_at)}>{ago(first.created_at)}</span>
        </Fact>
        {expiries.length > 0 && <Fact label="images kept until">{localTime(Math.min(...expiries))}</Fact>}
        {first.parent_batch_id && batches.length === 1 && (
          <Fact label="retry of">
            <a href={hrefOf("batches", first.parent_batch_id)}>the first batch, which shows all images</a>
          </Fact>
        )}
        {batches.length === 1 && first.metadata !== null && (
          <Fact label="metadata">
            {Object.entries(first.metadata)
              .map(([name, value]) => `${name}: ${value}`)
              .join(" · ")}
          </Fact>
        )}
        {batches.length === 1 && (
          <Fact label="id">
            <code>{first.id}</code>
          </Fact>
        )}
        {batches.length === 1 && <SentTogether batch={first} />}
      </dl>
      {members.length > 1 && <History members={members} batchCount={batches.length} />}
    </section>
  );
}

/** Why a batch waits, or has failed as a whole. */
function Troubles({ batch }: { batch: BatchObject }) {
  const { status, waiting, error, queued_behind } = batch;
  return (
    <>
      {queued_behind !== null && queued_behind > 0 && (
        <p className="note warn">
          It waits for {counted(queued_behind, "other batch", "other batches")} before it.
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
    </>
  );
}

/** Batches of one name that were sent within this time come from one run, as far as anybody can tell. */
const TOGETHER_SECONDS = 120;

/** The way to the other batches of a run: one for each model, or for as many prompts as a batch may have. */
function SentTogether({ batch }: { batch: BatchObject }) {
  const name = runName(batch.task_name);
  const found = useData(`together ${batch.id}`, (signal) =>
    listBatches({ status: "", taskName: name }, 1, signal),
  );
  const together = (found.value?.entries ?? []).filter(
    (each) =>
      runName(each.task_name) === name && Math.abs(each.created_at - batch.created_at) <= TOGETHER_SECONDS,
  );
  if (together.length < 2 || batch.parent_batch_id !== null) return null;
  const models = new Set(together.map(({ model }) => model)).size;
  return (
    <Fact label="sent together">
      <a href={batchesHref(together.map(({ id }) => id).reverse())}>
        {counted(together.length, "batch", "batches")}
        {models > 1 && ` with ${models} models`}: show as one
      </a>
    </Fact>
  );
}

/** The batches that the page shows as one. */
function History({ members, batchCount }: { members: readonly BatchObject[]; batchCount: number }) {
  const retries = members.length - batchCount;
  const parts = [
    ...(batchCount > 1 ? [`${batchCount} batches`] : []),
    ...(retries > 0 ? [counted(retries, "retry", "retries")] : []),
  ];
  return (
    <details className="history">
      <summary>{parts.join(", ")}</summary>
      <ul>
        {members.map((batch) => (
          <li key={batch.id}>
            <a href={hrefOf("batches", batch.id)} title={batch.id}>
              {batch.parent_batch_id === null ? "first batch" : "retry"}
            </a>
            <StatusBadge status={batch.status} />
            <Counts batch={batch} />
            <span>{costOfAll(batch)}</span>
            <span className="quiet">{batch.model}</span>
            <span className="quiet">{localTime(batch.created_at)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function costOfAll({ actual_cost, play_money, estimated_cost, hold_amount }: WholeBatch): string {
  if (actual_cost !== null || play_money) return costOf(actual_cost ?? 0, play_money);
  return `about ${usd(estimated_cost, "limit")}, ${usd(hold_amount, "limit")} held`;
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** A batch with its retries, or some of them: what they are, and their pictures. `openKey`: the image that is shown large. */
export function BatchPage({ ids, openKey }: { ids: readonly string[]; openKey: string | null }) {
  const batches = useBatches(ids);
  const list = useItems(batches.value ?? []);
  if (batches.error instanceof ApiError && batches.error.status === 404)
    return (
      <EmptyNote icon="batches" title="No such batch">
        <p className="quiet">It was deleted, or it belongs to another key.</p>
        <a className="button" href={hrefOf("batches")}>
          All batches
        </a>
      </EmptyNote>
    );
  const { items, isComplete, error, reload } = list;
  const onChanged = () => {
    batches.reload();
    reload();
  };
  return (
    <>
      <ErrorNote error={batches.error ?? error} />
      {batches.value && (
        <Loaded
          batches={batches.value}
          items={items}
          isComplete={isComplete}
          openKey={openKey}
          onChanged={onChanged}
        />
      )}
    </>
  );
}

const KINDS = ["all", "success", "failed", "pending"] as const;
type Kind = (typeof KINDS)[number];

interface LoadedProps {
  batches: readonly BatchObject[];
  items: readonly PlacedItem[];
  /** All items are read. */
  isComplete: boolean;
  openKey: string | null;
  onChanged: () => void;
}

function Loaded({ batches, items, isComplete, openKey, onChanged }: LoadedProps) {
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
  const places = compared?.places ?? shown;
  const listed = useMemo(() => places.filter((item) => item !== null), [places]);
  const whole = useMemo(() => asOne(batches), [batches]);
  useKeys({
    Escape: () => {
      if (selected.size > 0) setSelected(new Set());
      else if (openKey === null) go(hrefOf("batches"));
    },
  });
  const ids = batches.map(({ id }) => id);
  const show = (key: string | null, replace = false) =>
    go(batchesHref(ids, ...(key === null ? [] : [key])), { replace });
  const counts: Record<Kind, number> = {
    all: whole.item_count,
    success: whole.success_count,
    failed: whole.fail_count,
    pending: whole.pending_count,
  };
  const kinds = KINDS.filter(
    (each) => each === "all" || each === kind || (counts[each] > 0 && counts[each] < counts.all),
  );
  return (
    <>
      <BatchHead batches={batches} whole={whole} items={isComplete ? items : null} onChanged={onChanged} />
      <div className="tools">
        {kinds.length > 1 && (
          <fieldset className="tabs" aria-label="Show">
            {kinds.map((each) => (
              <button key={each} type="button" aria-pressed={kind === each} onClick={() => setKind(each)}>
                {each} <span className="of">{count(counts[each])}</span>
              </button>
            ))}
          </fieldset>
        )}
        <SearchField label="Search prompts" value={words} onChange={setWords} />
      </div>
      <Gallery
        places={places}
        describe={describeItem}
        columns={compared?.columns ?? null}
        openItem={openKey}
        selected={selected}
        onSelect={setSelected}
        onOpen={show}
      />
      {shown.length === 0 && isComplete && <EmptyNote icon="search" title="No image like this" />}
      <SelectionBar
        items={items}
        selected={selected}
        onSelectAll={() => setSelected(new Set(shown.map(({ key }) => key)))}
        onClear={() => setSelected(new Set())}
        onChanged={onChanged}
      />
      {openKey !== null && isComplete && (
        <LargeView
          items={listed.some(({ key }) => key === openKey) ? listed : items}
          openKey={openKey}
          onShow={(key) => show(key, true)}
          onChanged={onChanged}
          onClose={() => show(null, true)}
        />
      )}
    </>
  );
}

function describeItem(item: PlacedItem, width: number, variant: string | null): TileView {
  const { custom_id, status, error, prompt_preview } = item;
  const { prompt = prompt_preview } = item;
  return {
    className: status,
    label: `${custom_id}, ${status}: ${error?.message ?? prompt_preview}`,
    picture: <TilePicture item={item} width={width} />,
    name: custom_id,
    text: error ? error.code : variant === null ? prompt : factsOf(item),
    prompt,
    isFailed: error !== null,
  };
}

function TilePicture({ item, width }: { item: PlacedItem; width: number }) {
  const { batch, custom_id, status, error, images, position } = item;
  if (status === "failed")
    return (
      <span className="tile-error">
        <Icon name="warning" />
        <span dir="auto">{error?.message}</span>
      </span>
    );
  if (status === "pending") return <span className="picture-waits" />;
  if (isDeleted(item)) return <span className="tile-gone">deleted</span>;
  const edge = width * devicePixelRatio > 300 ? 1024 : 256;
  const sheet = edge === 256 && isTerminal(batch.status) ? sheetAt(batch.id, position) : null;
  const path = thumbnailPath(batch.id, custom_id, edge);
  return <RemotePicture path={path} sheet={sheet} alt="" size={images?.[0]} />;
}

/** `1024 × 1024 · $0.067 · 4 s`: what images of one prompt are compared by. */
function factsOf({ images, cost, took_ms, custom_id, batch }: PlacedItem): string {
  const [image] = images ?? [];
  const time = took_ms === null ? [] : [formatDuration(took_ms)];
  const price = cost === null || batch.play_money ? [] : [usd(cost)];
  return image ? [`${image.width} × ${image.height}`, ...price, ...time].join(" · ") : custom_id;
}

/** Items whose prompts repeat with other options or models, row by row; null where there is nothing to compare. */
interface ComparedItems {
  columns: string[];
  /** Null: no image has this place. */
  places: (PlacedItem | null)[];
}

function compareItems(items: readonly PlacedItem[]): ComparedItems | null {
  const images = items.map((item) => {
    const prompt = item.prompt ?? item.prompt_preview;
    return { item, prompt, variant: variantByPrompt(prompt, { ...item.options, model: item.batch.model }) };
  });
  const { columns, rows } = compareImages(images) ?? { columns: [], rows: [] };
  if (columns.length < 2) return null;
  const lines = rows.flatMap(({ cells }) =>
    Array.from({ length: Math.max(...cells.map((cell) => cell.length)) }, (_, line) =>
      cells.map((cell) => cell[line]?.item ?? null),
    ),
  );
  return { columns, places: lines.flat() };
}

function isSought(item: PlacedItem, kind: Kind, sought: string): boolean {
  if (kind !== "all" && item.status !== kind) return false;
  if (sought === "") return true;
  const texts = [item.custom_id, item.prompt ?? item.prompt_preview, item.error?.code, item.error?.message];
  return texts.some((text) => text?.toLowerCase().includes(sought));
}
