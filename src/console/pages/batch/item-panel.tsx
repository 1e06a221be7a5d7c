import { useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { formatSize } from "../../../kernel/text.ts";
import { copyImage, copyText } from "../../api/files.ts";
import { Icon } from "../../parts/icons.tsx";
import { announce, Problem } from "../../parts/notes.tsx";
import { RemotePicture } from "../../parts/picture.tsx";
import { costOf, StatusBadge, usd } from "../../parts/status.tsx";
import { useLimits } from "../../parts/use-data.ts";
import { hrefOf } from "../../parts/use-route.ts";
import { hasImages } from "./item-facts.ts";
import { fetchImage, saveImages } from "./save-images.ts";

/** The facts of an item beside its large picture. */
export function ItemPanel(props: {
  batch: BatchObject;
  item: ItemObject;
  position: string;
  /** Null when it cannot be made again. */
  onRetry: (() => void) | null;
  onClose: () => void;
}) {
  const { batch, item, position, onRetry, onClose } = props;
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
      <PanelActions batch={batch} item={item} prompt={prompt} onRetry={onRetry} />
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
}) {
  const { batch, item, prompt, onRetry } = props;
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
  const { images, cost, provider, model_version, seed, mime_type, upstream_cost } = item;
  const [image] = images ?? [];
  const rows: [string, string | null | undefined][] = [
    ["size", image && `${image.width} × ${image.height}, ${formatSize(image.size)}`],
    ["type", mime_type],
    ["cost", cost === null ? null : costOf(cost, play_money, "exact")],
    ["upstream cost", upstream_cost === null ? null : usd(upstream_cost)],
    ["made by", provider],
    ["model version", model_version],
    ["seed", seed === null ? null : String(seed)],
    ["SHA-256", image?.sha256],
  ];
  return rows.filter((row): row is [string, string] => typeof row[1] === "string");
}
