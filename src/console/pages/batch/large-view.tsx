import { type ReactNode, useEffect, useMemo, useState } from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { MOST_SEED } from "../../../contract/image-formats.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import { costText, formatUsd } from "../../../kernel/money.ts";
import { formatSize } from "../../../kernel/text.ts";
import { batchModels } from "../../api/batches.ts";
import { copyImage, copyText, type ReferenceFile, readReference } from "../../api/files.ts";
import { randomId, send } from "../../api/request.ts";
import { ConfirmDialog, Dialog } from "../../parts/dialog.tsx";
import { useKeys } from "../../parts/keys.tsx";
import { announce, ErrorNote, Icon, Problem } from "../../parts/notes.tsx";
import { RemotePicture, thumbnailPath } from "../../parts/pictures.tsx";
import { go, hrefOf } from "../../parts/route.ts";
import { costOf, count, StatusBadge, usd } from "../../parts/status.tsx";
import { useData, useLimits } from "../../parts/use-data.ts";
import { type CheckedDraft, checkDraft } from "../new-batch/check-draft.ts";
import { ModelField, OptionFieldset } from "../new-batch/draft-fields.tsx";
import { sendDraft } from "../new-batch/send-bar.tsx";
import { RetryDialog, retriableOf } from "./actions.tsx";
import { canSave, fetchImage, isDeleted, saveImages } from "./images.ts";
import type { PlacedItem } from "./use-items.ts";

/** `again`: the same with another seed or model; `edit`: another prompt, with the picture as reference. */
type MakeWay = "again" | "edit";

/** Makes another image from one that is there: shows the price before it sends it, as a batch of its own. */
function MakeDialog({ item, way, onClose }: { item: PlacedItem; way: MakeWay; onClose: () => void }) {
  const limits = useLimits();
  const models = useData("models", batchModels);
  const [prompt, setPrompt] = useState(item.prompt ?? item.prompt_preview);
  const [modelId, setModelId] = useState(item.batch.model);
  const [options, setOptions] = useState(() => optionsOf(item, way));
  const references = useData(`references ${item.batch.id} ${item.key} ${way}`, () =>
    referencesOf(item, way, limits.referenceImageBytes),
  );
  const [checked, setChecked] = useState<CheckedDraft | null>(null);
  const key = useMemo(() => `console-${randomId()}`, []);
  const model = models.value?.find(({ id }) => id === modelId) ?? models.value?.[0] ?? null;
  const files = references.value;
  const known = models.value;
  useEffect(() => {
    let isWanted = true;
    setChecked(null);
    if (files === null || known === null || model === null) return;
    const text = JSON.stringify({ custom_id: item.custom_id, prompt });
    const draft = { text, format: "jsonl" as const, fileName: "", count: 1, sharesReferences: true };
    void checkDraft({ ...draft, model: model.id, options, lists: {} }, files, { limits, models: known }).then(
      (found) => isWanted && setChecked(found),
    );
    return () => {
      isWanted = false;
    };
  }, [item.custom_id, prompt, model, options, files, known, limits]);
  const price = checked?.problemCount === 0 ? checked.price : null;
  return (
    <ConfirmDialog
      title={way === "again" ? "Make it again" : "Edit and make"}
      className="medium"
      action={price?.isPaid ? `Pay up to ${formatUsd(price.hold, "limit")}` : "Make the image"}
      isReady={price !== null}
      onClose={onClose}
      onConfirm={async () => {
        if (checked === null || known === null) return;
        const name = `${item.custom_id}, ${way === "again" ? "again" : "edited"}`;
        const [batch] = await sendDraft({ key, name }, checked.batches, known);
        announce("The batch is sent.");
        if (batch) go(hrefOf("batches", batch.id));
      }}
    >
      <label className="field">
        <span>Prompt</span>
        <textarea rows={4} value={prompt} onChange={(event) => setPrompt(event.target.value)} />
      </label>
      <ModelField models={known ?? []} model={model} onModel={setModelId} />
      <OptionFieldset options={options} model={model} onChange={setOptions} label="Options of the image" />
      <ErrorNote error={models.error ?? references.error} />
      {files !== null && files.length > 0 && (
        <div className="reference-row">
          {files.map(({ url, name }) => (
            <img key={url} src={url} alt={`reference ${name}`} />
          ))}
          <span className="quiet">
            {way === "edit" ? "This picture is the reference." : "The same references."}
          </span>
        </div>
      )}
      {checked?.problems.map(({ field, message }) => (
        <p key={`${field} ${message}`} className="note bad" dir="auto">
          <span>
            {field !== null && <b>{field}: </b>}
            {message}
          </span>
        </p>
      ))}
      <p role="status">
        {price && (
          <>
            <b>{costText({ micros: price.cost, isPlay: price.isPlay }, "exact")}</b>
            {!price.isPlay && (
              <span className="quiet"> · {formatUsd(price.hold, "limit")} is held until the end</span>
            )}
          </>
        )}
      </p>
    </ConfirmDialog>
  );
}

function optionsOf(item: PlacedItem, way: MakeWay): Record<string, string> {
  const { image_size: size, seed: _, ...others } = item.options ?? {};
  const seed = way === "again" ? Math.floor(Math.random() * MOST_SEED) : null;
  const asked = Object.entries({ size, ...others, seed }).filter(([, value]) => value != null);
  return Object.fromEntries(asked.map(([field, value]) => [field, String(value)]));
}

/** The images that the new one starts from. */
function referencesOf(item: PlacedItem, way: MakeWay, maxBytes: number): Promise<ReferenceFile[]> {
  if (way === "edit")
    return Promise.all([fetchImage(item).then((blob) => toReference(blob, item.custom_id, maxBytes))]);
  const read = (item.references ?? []).map(async ({ id }, index) => {
    const name = id ?? `reference ${index + 1}`;
    const answer = await send(routes.reference(item.batch.id, item.custom_id, index));
    return toReference(await answer.blob(), name, maxBytes);
  });
  return Promise.all(read);
}

async function toReference(blob: Blob, name: string, maxBytes: number): Promise<ReferenceFile> {
  const file = new File([blob], `${name}.${blob.type.split("/")[1]}`, { type: blob.type });
  const reference = await readReference(file, maxBytes);
  if (typeof reference === "string") throw new Error(reference);
  return reference;
}

/**
 * What is shown as large as the window allows: the picture, and a panel beside it. The arrows lead to the others, with the keys
 * and with the buttons. `keys` work while the frame `isActive`, which it is not below another dialog.
 */
export function LargeFrame(props: {
  label: string;
  index: number;
  total: number;
  onStep: (index: number) => void;
  keys: Parameters<typeof useKeys>[0];
  isActive: boolean;
  onClose: () => void;
  stage: ReactNode;
  panel: ReactNode;
}) {
  const { label, index, total, onStep, keys, isActive, onClose, stage, panel } = props;
  const stepTo = (to: number) => (event?: { preventDefault(): void }) => {
    event?.preventDefault();
    if (to >= 0 && to < total) onStep(to);
  };
  const arrows = {
    ArrowLeft: stepTo(index - 1),
    ArrowRight: stepTo(index + 1),
    Home: stepTo(0),
    End: stepTo(total - 1),
  };
  useKeys({ ...arrows, ...keys }, { inDialog: true, isActive });
  return (
    <Dialog label={label} className="large" focusesItself onClose={onClose}>
      {stage}
      <button
        type="button"
        className="step before"
        aria-label="Image before"
        disabled={index <= 0}
        onClick={stepTo(index - 1)}
      >
        <Icon name="left" />
      </button>
      <button
        type="button"
        className="step after"
        aria-label="Next image"
        disabled={index === total - 1}
        onClick={stepTo(index + 1)}
      >
        <Icon name="right" />
      </button>
      <aside className="panel">
        <div className="panel-head">
          <span className="quiet">{`${count(index + 1)} of ${count(total)}`}</span>
          <button type="button" className="button plain" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        {panel}
      </aside>
    </Dialog>
  );
}

/** One image as large as the window allows, with all that is known of it. */
export function LargeView(props: {
  items: readonly PlacedItem[];
  openKey: string;
  onShow: (key: string) => void;
  /** Images are made again. */
  onChanged: () => void;
  onClose: () => void;
}) {
  const { items, openKey, onShow, onChanged, onClose } = props;
  const [isFull, setFull] = useState(false);
  const [asked, setAsked] = useState<"retry" | MakeWay | null>(null);
  const index = items.findIndex(({ key }) => key === openKey);
  const item = items[index];
  const stepTo = (to: number) => {
    const next = items[to];
    if (next) onShow(next.key);
  };
  const ask = (question: typeof asked) => () => setAsked(question);
  if (!item)
    return (
      <Dialog label="No such image" className="small" onClose={onClose}>
        <h2>No such image in this batch</h2>
        <div className="dialog-actions">
          <button type="button" className="button primary" onClick={onClose}>
            Show the batch
          </button>
        </div>
      </Dialog>
    );
  const closeQuestion = () => setAsked(null);
  return (
    <>
      <LargeFrame
        label={`Image ${item.custom_id}`}
        index={index}
        total={items.length}
        onStep={stepTo}
        keys={{
          k: () => stepTo(index - 1),
          j: () => stepTo(index + 1),
          z: () => setFull(!isFull),
          a: ask("again"),
          e: () => canSave(item) && setAsked("edit"),
        }}
        isActive={asked === null}
        onClose={onClose}
        stage={<Stage item={item} isFull={isFull} onToggle={() => setFull(!isFull)} />}
        panel={<ItemPanel item={item} onAsk={ask} />}
      />
      {asked === "retry" && <RetryDialog chosen={[item]} onChanged={onChanged} onClose={closeQuestion} />}
      {(asked === "again" || asked === "edit") && (
        <MakeDialog key={item.key} item={item} way={asked} onClose={closeQuestion} />
      )}
    </>
  );
}

function Stage({ item, isFull, onToggle }: { item: PlacedItem; isFull: boolean; onToggle: () => void }) {
  const { batch, custom_id, images } = item;
  const prompt = item.prompt ?? item.prompt_preview;
  if (item.status !== "success" || isDeleted(item))
    return (
      <div className="stage message">
        <p dir="auto">{messageOf(item)}</p>
      </div>
    );
  // The whole file can be had when the batch has ended.
  const isWhole = isFull && isTerminal(batch.status);
  const path = isWhole ? routes.content(batch.id, custom_id) : thumbnailPath(batch.id, custom_id, 1024);
  return (
    <div className={`stage ${isFull ? "full" : ""}`}>
      <button
        type="button"
        className="zoom"
        aria-label={isFull ? "Fit the window" : "Full size"}
        onClick={onToggle}
      >
        <RemotePicture path={path} alt={prompt} size={images?.[0]} />
      </button>
    </div>
  );
}

function messageOf({ status, error }: ItemObject): string {
  if (status === "pending") return "This image is not made yet.";
  return error?.message ?? "The files of this image were deleted.";
}

interface PanelProps {
  item: PlacedItem;
  onAsk: (question: "retry" | MakeWay) => () => void;
}

/** The facts of an item beside its large picture. */
function ItemPanel({ item, onAsk }: PanelProps) {
  const prompt = item.prompt ?? item.prompt_preview;
  return (
    <>
      <h2 dir="auto">{item.custom_id}</h2>
      <StatusBadge status={item.status} />
      <p className="panel-prompt" dir="auto">
        {prompt}
      </p>
      {item.error && (
        <p className="note bad">
          <Problem message={item.error.message} code={item.error.code} />
        </p>
      )}
      {item.notes.map((note) => (
        <p key={note} className="note warn">
          {note}
        </p>
      ))}
      <PanelActions item={item} prompt={prompt} onAsk={onAsk} />
      <References item={item} />
      <dl className="facts column">
        {rowsOf(item).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function PanelActions({ item, prompt, onAsk }: PanelProps & { prompt: string }) {
  const [isBusy, setBusy] = useState(false);
  const { zipItems } = useLimits();
  const canFetch = canSave(item);
  const doing = (work: () => Promise<void>, said: string) => async () => {
    setBusy(true);
    try {
      await work();
      announce(said);
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setBusy(false);
    }
  };
  const save = () => saveImages([item], { name: item.custom_id, zipItems });
  const copy = doing(async () => copyImage(await fetchImage(item)), "The image is copied.");
  return (
    <div className="actions">
      {item.status === "success" && !isDeleted(item) && (
        <>
          <button
            type="button"
            className="button primary"
            disabled={!canFetch || isBusy}
            onClick={doing(save, "The image is saved.")}
          >
            <Icon name="download" /> Download
          </button>
          <button type="button" className="button" disabled={!canFetch || isBusy} onClick={copy}>
            <Icon name="copy" /> Copy image
          </button>
        </>
      )}
      {retriableOf([item]).length > 0 && (
        <button type="button" className="button primary" onClick={onAsk("retry")}>
          <Icon name="retry" /> Retry
        </button>
      )}
      <button type="button" className="button" onClick={onAsk("again")}>
        <Icon name="add" /> Again
      </button>
      {canFetch && (
        <button type="button" className="button" onClick={onAsk("edit")}>
          <Icon name="edit" /> Edit and make
        </button>
      )}
      <button
        type="button"
        className="button"
        disabled={isBusy}
        onClick={doing(() => copyText(prompt), "The prompt is copied.")}
      >
        <Icon name="copy" /> Copy prompt
      </button>
    </div>
  );
}

function References({ item }: { item: PlacedItem }) {
  const { batch, references = [] } = item;
  if (references.length === 0) return null;
  return (
    <section className="panel-references" aria-label="Reference images">
      <h3>References</h3>
      <div className="reference-row">
        {references.map((reference, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the index is what names a reference.
          <figure key={index}>
            <RemotePicture
              path={routes.reference(batch.id, item.custom_id, index)}
              alt={reference.id ?? `reference ${index + 1}`}
            />
            {reference.id && <figcaption>{reference.id}</figcaption>}
          </figure>
        ))}
      </div>
    </section>
  );
}

function rowsOf(item: PlacedItem) {
  const { images, cost, provider, model_version, seed, mime_type, upstream_cost, took_ms, options, batch } =
    item;
  const { aspect_ratio, image_size, quality, background, negative_prompt, seed: askedSeed } = options ?? {};
  const [image] = images ?? [];
  const rows: [string, string | null | undefined][] = [
    ["cost", cost === null ? null : costOf(cost, batch.play_money, "exact")],
    ["pixels", image && `${image.width} × ${image.height}`],
    ["file", image && [formatSize(image.size), mime_type].filter(Boolean).join(", ")],
    ["model", batch.model],
    ["asked for", [aspect_ratio, image_size].filter(Boolean).join(", ") || null],
    ["quality", quality],
    ["background", background],
    ["without", negative_prompt],
    ["upstream cost", upstream_cost === null ? null : usd(upstream_cost)],
    ["made by", provider],
    ["made in", took_ms === null ? null : formatDuration(took_ms)],
    ["model version", model_version],
    ["seed", (seed ?? askedSeed)?.toString()],
    ["SHA-256", image?.sha256],
  ];
  return rows.filter((row): row is [string, string] => typeof row[1] === "string");
}
