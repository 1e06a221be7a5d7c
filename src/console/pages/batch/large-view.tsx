import { useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { formatSize } from "../../../kernel/text.ts";
import { copyImage, copyText } from "../../api/files.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { useKeys } from "../../parts/keys.tsx";
import { announce, Icon, Problem } from "../../parts/notes.tsx";
import { RemotePicture, thumbnailPath } from "../../parts/pictures.tsx";
import { hrefOf } from "../../parts/route.ts";
import { costOf, StatusBadge, usd } from "../../parts/status.tsx";
import { useLimits } from "../../parts/use-data.ts";
import { RetryDialog, retriableOf } from "./actions.tsx";
import { fetchImage, hasImages, saveImages } from "./images.ts";
import { useStartOver } from "./start-over.tsx";

/** One image as large as the window allows, with all that is known of it. */
export function LargeView(props: {
  batch: BatchObject;
  items: readonly ItemObject[];
  customId: string;
  onShow: (customId: string) => void;
  onClose: () => void;
}) {
  const { batch, items, customId, onShow, onClose } = props;
  const [isFull, setFull] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const { start, dialog } = useStartOver(batch);
  const index = items.findIndex(({ custom_id }) => custom_id === customId);
  const item = items[index];
  const stepTo = (to: number) => (event?: { preventDefault(): void }) => {
    event?.preventDefault();
    const next = items[to];
    if (next) onShow(next.custom_id);
  };
  const step = (by: number) => stepTo(index + by);
  useKeys(
    {
      ArrowLeft: step(-1),
      ArrowRight: step(1),
      Home: stepTo(0),
      End: stepTo(items.length - 1),
      k: step(-1),
      j: step(1),
      z: () => setFull(!isFull),
    },
    { inDialog: true, isActive: !isAsking && dialog === null },
  );
  if (!item)
    return (
      <Dialog label="No such image" className="small" onClose={onClose}>
        <h2>No such image in this batch</h2>
      </Dialog>
    );
  const retriable = retriableOf(batch, [item]);
  return (
    <>
      <Dialog label={`Image ${customId}`} className="large" focusesItself onClose={onClose}>
        <Stage batch={batch} item={item} isFull={isFull} onToggle={() => setFull(!isFull)} />
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
          batch={batch}
          item={item}
          position={`${index + 1} of ${items.length}`}
          onRetry={retriable.length > 0 ? () => setAsking(true) : null}
          onStart={(way) => start(item, way)}
          onClose={onClose}
        />
      </Dialog>
      {dialog}
      {isAsking && <RetryDialog batch={batch} chosen={[item]} onClose={() => setAsking(false)} />}
    </>
  );
}

function Stage(props: { batch: BatchObject; item: ItemObject; isFull: boolean; onToggle: () => void }) {
  const { batch, item, isFull, onToggle } = props;
  const prompt = item.prompt ?? item.prompt_preview;
  if (!hasImages(item) || batch.status === "output_deleted")
    return (
      <div className="stage message">
        <p dir="auto">{messageOf(item)}</p>
      </div>
    );
  // The whole file can be had when the batch has ended.
  const isWhole = isFull && isTerminal(batch.status);
  const path = isWhole
    ? routes.content(batch.id, item.custom_id)
    : thumbnailPath(batch.id, item.custom_id, 1024);
  return (
    <div className={`stage ${isFull ? "full" : ""}`}>
      <button
        type="button"
        className="zoom"
        aria-label={isFull ? "Fit the window" : "Full size"}
        onClick={onToggle}
      >
        <RemotePicture path={path} alt={prompt} />
      </button>
    </div>
  );
}

function messageOf({ status, error }: ItemObject): string {
  if (status === "pending") return "This image is not made yet.";
  return error?.message ?? "The files of this image were deleted.";
}

/** The facts of an item beside its large picture. */
function ItemPanel(props: {
  batch: BatchObject;
  item: ItemObject;
  position: string;
  /** Null when it cannot be made again. */
  onRetry: (() => void) | null;
  onStart: (way: "again" | "edit") => void;
  onClose: () => void;
}) {
  const { batch, item, position, onRetry, onStart, onClose } = props;
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
      {item.retried_in && (
        <p>
          <a href={hrefOf("batches", item.retried_in, item.custom_id)}>A later batch</a> makes it again.
        </p>
      )}
      {item.notes.map((note) => (
        <p key={note} className="note warn">
          {note}
        </p>
      ))}
      <PanelActions batch={batch} item={item} prompt={prompt} onRetry={onRetry} onStart={onStart} />
      <References batch={batch} item={item} />
      <dl className="facts column">
        {rowsOf(batch, item).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </aside>
  );
}

function PanelActions(props: {
  batch: BatchObject;
  item: ItemObject;
  prompt: string;
  onRetry: (() => void) | null;
  onStart: (way: "again" | "edit") => void;
}) {
  const { batch, item, prompt, onRetry, onStart } = props;
  const [isBusy, setBusy] = useState(false);
  const { zipItems } = useLimits();
  const canFetch = hasImages(item) && isTerminal(batch.status) && batch.status !== "output_deleted";
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
  const copy = doing(async () => copyImage(await fetchImage(batch.id, item)), "The image is copied.");
  return (
    <div className="actions">
      {hasImages(item) && (
        <>
          <button
            type="button"
            className="button primary"
            disabled={!canFetch || isBusy}
            onClick={doing(() => saveImages(batch.id, [item], { zipItems }), "The image is saved.")}
          >
            <Icon name="download" /> Download
          </button>
          <button type="button" className="button" disabled={!canFetch || isBusy} onClick={copy}>
            <Icon name="copy" /> Copy image
          </button>
        </>
      )}
      {onRetry && (
        <button type="button" className="button primary" onClick={onRetry}>
          <Icon name="retry" /> Retry
        </button>
      )}
      <button type="button" className="button" onClick={() => onStart("again")}>
        <Icon name="add" /> Again
      </button>
      {canFetch && (
        <button type="button" className="button" onClick={() => onStart("edit")}>
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

function References({ batch, item }: { batch: BatchObject; item: ItemObject }) {
  const references = item.references ?? [];
  if (references.length === 0) return null;
  return (
    <section className="panel-references" aria-label="Reference images">
      <h3>References</h3>
      <div className="reference-row">
        {references.map((reference, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the index is what names a reference.
          <figure key={index}>
            <RemotePicture
              path={reference.storage_uri === null ? routes.reference(batch.id, item.custom_id, index) : null}
              alt={reference.id ?? `reference ${index + 1}`}
            />
            {reference.id && <figcaption>{reference.id}</figcaption>}
          </figure>
        ))}
      </div>
    </section>
  );
}

function rowsOf({ play_money }: BatchObject, item: ItemObject) {
  const { images, cost, provider, model_version, seed, mime_type, upstream_cost, options } = item;
  const { aspect_ratio, image_size, quality, background, negative_prompt, seed: askedSeed } = options ?? {};
  const [image] = images ?? [];
  const rows: [string, string | null | undefined][] = [
    ["size", image && `${image.width} × ${image.height}, ${formatSize(image.size)}`],
    ["type", mime_type],
    ["asked for", [aspect_ratio, image_size].filter(Boolean).join(", ") || null],
    ["quality", quality],
    ["background", background],
    ["without", negative_prompt],
    ["cost", cost === null ? null : costOf(cost, play_money, "exact")],
    ["upstream cost", upstream_cost === null ? null : usd(upstream_cost)],
    ["made by", provider],
    ["model version", model_version],
    ["seed", (seed ?? askedSeed)?.toString()],
    ["SHA-256", image?.sha256],
  ];
  return rows.filter((row): row is [string, string] => typeof row[1] === "string");
}
