import { useEffect, useMemo, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isRefusalCode, isTerminal } from "../../../contract/statuses.ts";
import { FREE_DRAWINGS, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import type { Options } from "../../../prompts/options.ts";
import {
  batchModels,
  cancelBatch,
  deleteImages,
  deleteOutputs,
  deleteRecord,
  retryBatch,
  zipLink,
} from "../../api/batches.ts";
import { saveLink } from "../../api/files.ts";
import { imagePrice } from "../../api/models.ts";
import { randomId, urlOf } from "../../api/request.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce, Icon } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/route.ts";
import { count, usd } from "../../parts/status.tsx";
import { useData, useLimits } from "../../parts/use-data.ts";
import { hasImages, saveImages } from "./images.ts";

/**
 * Returns the failed items of a batch that can be made again. It leaves out those whose content was refused, and those
 * that another batch makes again.
 */
export function retriableOf(batch: BatchObject, items: readonly ItemObject[]): ItemObject[] {
  if (!isTerminal(batch.status) || batch.source !== "batch") return [];
  return items.filter((item) => isRetriable(item) && !item.retried_in);
}

function isRetriable({ status, error }: ItemObject): boolean {
  return status === "failed" && !isRefusalCode(error?.code ?? "");
}

/** Asks before the failed ones of the chosen items are made again. Those that were refused are left out. */
export function RetryDialog(props: {
  batch: BatchObject;
  chosen: readonly ItemObject[];
  onClose: () => void;
}) {
  const { batch, chosen, onClose } = props;
  const items = retriableOf(batch, chosen);
  const leftOut = chosen.filter((item) => item.status === "failed" && !isRetriable(item)).length;
  const { id, item_count, hold_amount, estimated_cost, model } = batch;
  // One key for the question: confirmed twice, it makes one batch.
  const idempotencyKey = useMemo(randomId, []);
  const models = useData("models", batchModels);
  const listed = models.value?.find((each) => each.id === model);
  const pricing = listed?.pricing;
  const isPlay = pricing?.play_money ?? batch.play_money;
  const prices = listed && items.map(({ options }) => imagePrice(listed, askedOf(options)));
  const sumOf = (part: "cost" | "hold", total: number) =>
    prices
      ? microsToNumber(prices.reduce((sum, price) => sum + price[part], 0))
      : (items.length * total) / item_count;
  const price = sumOf("cost", estimated_cost);
  const hold = sumOf("hold", hold_amount);
  return (
    <ConfirmDialog
      title={`Make ${counted(items.length, "failed image")} again?`}
      action={pricing?.paid ? `Pay up to ${usd(hold, "limit")}` : "Make again"}
      onClose={onClose}
      onConfirm={async () => {
        const customIds = items.map(({ custom_id }) => custom_id);
        const consent = { idempotencyKey, maxCost: pricing?.paid ? hold : null };
        const retry = await retryBatch(id, customIds, consent);
        announce("A new batch makes the failed images again.");
        go(hrefOf("batches", retry.id));
      }}
    >
      <p>
        A new batch, linked to this one, makes {items.length === 1 ? "it" : "them"} again
        {isPlay
          ? `: ${FREE_DRAWINGS}.`
          : `. It costs about ${usd(price, "limit")}, and ${usd(hold, "limit")} is reserved until it has ended.`}
      </p>
      {leftOut > 0 && (
        <p>
          {leftOut} more {leftOut === 1 ? "was" : "were"} refused for what the prompt asks, and would be
          refused again: {leftOut === 1 ? "it is" : "they are"} left out.
        </p>
      )}
    </ConfirmDialog>
  );
}

function askedOf(options: ItemObject["options"]): Pick<Options, "size" | "quality"> {
  const { image_size: size, quality } = options ?? {};
  return { ...(size ? { size } : {}), ...(quality ? { quality } : {}) };
}

/** Asks which parts of an ended batch to delete. */
function DeleteDialog(props: { batch: BatchObject; onChanged: () => void; onClose: () => void }) {
  const { batch, onChanged, onClose } = props;
  const hasOutputs = batch.status !== "output_deleted" && batch.success_count > 0;
  const [outputs, setOutputs] = useState(hasOutputs);
  const [record, setRecord] = useState(!hasOutputs);
  return (
    <ConfirmDialog
      title="Delete from the service?"
      action="Delete"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        if (outputs) await deleteOutputs(batch.id);
        if (record) await deleteRecord(batch.id);
        if (outputs || record) announce("Deleted.");
        if (record) go(hrefOf("batches"));
        else onChanged();
      }}
    >
      {hasOutputs && (
        <label className="check">
          <input type="checkbox" checked={outputs} onChange={(event) => setOutputs(event.target.checked)} />
          the image files; this cannot be undone
        </label>
      )}
      <label className="check">
        <input type="checkbox" checked={record} onChange={(event) => setRecord(event.target.checked)} />
        the entry in your list
      </label>
    </ConfirmDialog>
  );
}

/**
 * Downloads all images of a batch: as the service's ZIP, or, of more images than the service puts into one, as several that the
 * page makes. `items` is null before all of them are known.
 */
function DownloadButton({ batch, items }: { batch: BatchObject; items: ItemObject[] | null }) {
  const { zipItems } = useLimits();
  const images = items?.filter(hasImages) ?? null;
  if (batch.success_count <= zipItems)
    return <SaveButton label="Download ZIP" save={() => followZip(batch.id)} />;
  const zips = Math.ceil((images?.length || batch.success_count) / zipItems);
  return <SaveButton label={`Download ${zips} ZIPs`} {...{ batch, images }} />;
}

/** Saves images, and shows how many of them are there. `save` saves them in another way, which reports no number. */
function SaveButton(props: {
  label: string;
  batch?: BatchObject;
  images?: readonly ItemObject[] | null;
  save?: () => Promise<void>;
}) {
  const { label, batch, images, save } = props;
  const { zipItems } = useLimits();
  const [done, setDone] = useState<number | null>(null);
  const start = async () => {
    setDone(0);
    try {
      if (save) await save();
      else if (batch && images) await saveImages(batch.id, images, { zipItems, onDone: setDone });
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setDone(null);
    }
  };
  return (
    <button
      type="button"
      className="button primary"
      disabled={done !== null || (!save && !images?.length)}
      onClick={start}
    >
      <Icon name="download" />
      {done === null || !images ? label : `${count(done)} of ${count(images.length)}`}
    </button>
  );
}

async function followZip(batchId: string): Promise<void> {
  // The ticket counts, not the address that the service goes by: the page may be open under another one.
  const { search } = new URL(await zipLink(batchId));
  saveLink(urlOf(routes.ticketDownload(batchId) + search), `${batchId}.zip`);
}

export interface BatchActionsProps {
  batch: BatchObject;
  /** Null before all of them are known. */
  items: ItemObject[] | null;
  onChanged: () => void;
}

/** The buttons for a batch in its status. */
export function BatchActions({ batch, items, onChanged }: BatchActionsProps) {
  const [question, setQuestion] = useState<"cancel" | "retry" | "delete" | null>(null);
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
      {question === "retry" && <RetryDialog batch={batch} chosen={items ?? []} onClose={close} />}
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

interface SelectionBarProps {
  batch: BatchObject;
  items: readonly ItemObject[];
  selected: ReadonlySet<string>;
  onSelectAll: () => void;
  onClear: () => void;
  /** Images were deleted. */
  onChanged: () => void;
}

/** The buttons for the selected images. Absent while none is selected. */
export function SelectionBar(props: SelectionBarProps) {
  return props.selected.size === 0 ? null : <Buttons {...props} />;
}

function Buttons(props: SelectionBarProps) {
  const { batch, items, selected, onSelectAll, onClear, onChanged } = props;
  const [question, setQuestion] = useState<"retry" | "delete" | null>(null);
  useEffect(
    () => () => {
      if (document.activeElement === document.body) document.getElementById("main")?.focus();
    },
    [],
  );
  const chosen = items.filter(({ custom_id }) => selected.has(custom_id));
  const isThere = isTerminal(batch.status) && batch.status !== "output_deleted";
  const images = isThere ? chosen.filter(hasImages) : [];
  const retriable = retriableOf(batch, chosen);
  const close = () => setQuestion(null);
  return (
    <>
      <section className="selection" aria-label="Selected images">
        <b>{count(selected.size)} selected</b>
        <button type="button" className="button plain" onClick={onSelectAll}>
          All
        </button>
        <button type="button" className="button plain" onClick={onClear}>
          Clear
        </button>
        {(images.length > 0 || retriable.length === 0) && (
          <SaveButton label={`Download ${count(images.length)}`} batch={batch} images={images} />
        )}
        {retriable.length > 0 && (
          <button type="button" className="button" onClick={() => setQuestion("retry")}>
            <Icon name="retry" /> Retry {count(retriable.length)}
          </button>
        )}
        {images.length > 0 && batch.source === "batch" && (
          <button type="button" className="button" onClick={() => setQuestion("delete")}>
            <Icon name="trash" /> Delete {count(images.length)}
          </button>
        )}
      </section>
      {question === "retry" && <RetryDialog batch={batch} chosen={chosen} onClose={close} />}
      {question === "delete" && (
        <ConfirmDialog
          title={`Delete ${counted(images.length, "image")}?`}
          action="Delete"
          isDangerous
          onClose={close}
          onConfirm={async () => {
            try {
              for (const { custom_id } of images) await deleteImages(batch.id, custom_id);
            } finally {
              onChanged();
            }
            announce("Deleted.");
            onClear();
          }}
        >
          <p>The files are deleted from the service. This cannot be undone, and what was paid stays paid.</p>
        </ConfirmDialog>
      )}
    </>
  );
}
