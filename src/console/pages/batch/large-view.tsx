import { useState } from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import { formatSize } from "../../../kernel/text.ts";
import { copyImage, copyText } from "../../api/files.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { useKeys } from "../../parts/keys.tsx";
import { announce, Icon, Problem } from "../../parts/notes.tsx";
import { RemotePicture, thumbnailPath } from "../../parts/pictures.tsx";
import { costOf, count, StatusBadge, usd } from "../../parts/status.tsx";
import { useLimits } from "../../parts/use-data.ts";
import { RetryDialog, retriableOf } from "./actions.tsx";
import { canSave, fetchImage, isDeleted, saveImages } from "./images.ts";
import { MakeDialog, type MakeWay } from "./make-dialog.tsx";
import type { PlacedItem } from "./use-items.ts";

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
  const stepTo = (to: number) => (event?: { preventDefault(): void }) => {
    event?.preventDefault();
    const next = items[to];
    if (next) onShow(next.key);
  };
  const step = (by: number) => stepTo(index + by);
  const ask = (question: typeof asked) => () => setAsked(question);
  useKeys(
    {
      ArrowLeft: step(-1),
      ArrowRight: step(1),
      Home: stepTo(0),
      End: stepTo(items.length - 1),
      k: step(-1),
      j: step(1),
      z: () => setFull(!isFull),
      a: ask("again"),
      e: () => item && canSave(item) && setAsked("edit"),
    },
    { inDialog: true, isActive: asked === null },
  );
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
      <Dialog label={`Image ${item.custom_id}`} className="large" focusesItself onClose={onClose}>
        <Stage item={item} isFull={isFull} onToggle={() => setFull(!isFull)} />
        <button
          type="button"
          className="step before"
          aria-label="Image before"
          disabled={index === 0}
          onClick={step(-1)}
        >
          <Icon name="left" />
        </button>
        <button
          type="button"
          className="step after"
          aria-label="Next image"
          disabled={index === items.length - 1}
          onClick={step(1)}
        >
          <Icon name="right" />
        </button>
        <ItemPanel
          item={item}
          position={`${count(index + 1)} of ${count(items.length)}`}
          onAsk={ask}
          onClose={onClose}
        />
      </Dialog>
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
function ItemPanel(props: PanelProps & { position: string; onClose: () => void }) {
  const { item, position, onAsk, onClose } = props;
  const prompt = item.prompt ?? item.prompt_preview;
  return (
    <aside className="panel">
      <div className="panel-head">
        <span className="quiet">{position}</span>
        <button type="button" className="button plain" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
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
    </aside>
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
