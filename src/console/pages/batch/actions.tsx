import { useEffect, useMemo, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import type { ConsoleBody } from "../../../contract/console-api.ts";
import { readImageSize } from "../../../contract/image-formats.ts";
import { routes } from "../../../contract/routes.ts";
import { isRefusalCode, isTerminal } from "../../../contract/statuses.ts";
import { groupBy } from "../../../kernel/json.ts";
import { FREE_DRAWINGS, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import type { Options } from "../../../prompts/options.ts";
import { batchModels, retryBatch } from "../../api/batches.ts";
import { saveLink } from "../../api/files.ts";
import { imagePrice } from "../../api/models.ts";
import { fetchJson, randomId, send, urlOf } from "../../api/request.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce, Icon } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/route.ts";
import { count, usd } from "../../parts/status.tsx";
import { useData, useLimits } from "../../parts/use-data.ts";
import { canSave, fileStem, saveImages } from "./images.ts";
import { membersOf, type PlacedItem } from "./use-items.ts";

/** The failures that this tab has asked for again. It may take a moment until their retry shows. */
const retried = new Set<string>();
const failureOf = ({ batch, custom_id }: PlacedItem) => `${batch.id} ${custom_id}`;

/**
 * Returns the failed items that can be made again. It leaves out those whose content was refused, and those of a batch that
 * has not ended.
 */
export function retriableOf(items: readonly PlacedItem[]): PlacedItem[] {
  const canBe = ({ status, source }: BatchObject) => isTerminal(status) && source === "batch";
  return items.filter((item) => isRetriable(item) && canBe(item.batch) && !retried.has(failureOf(item)));
}

function isRetriable({ status, error }: ItemObject): boolean {
  return status === "failed" && !isRefusalCode(error?.code ?? "");
}

/** Asks before the failed ones of the chosen items are made again. Those that were refused are left out. */
export function RetryDialog(props: {
  chosen: readonly PlacedItem[];
  onChanged: () => void;
  onClose: () => void;
}) {
  const { chosen, onChanged, onClose } = props;
  const items = retriableOf(chosen);
  const leftOut = chosen.filter((item) => item.status === "failed" && !isRetriable(item)).length;
  // One key for the question: confirmed twice, it makes each batch once.
  const idempotencyKey = useMemo(randomId, []);
  const models = useData("models", batchModels);
  const listedOf = ({ batch }: PlacedItem) => models.value?.find(({ id }) => id === batch.model);
  const isPaid = items.some((item) => listedOf(item)?.pricing.paid);
  const isPlay = items.every((item) => listedOf(item)?.pricing.play_money ?? item.batch.play_money);
  const sumOf = (part: "cost" | "hold", of: readonly PlacedItem[]) =>
    of.reduce((sum, item) => {
      const listed = listedOf(item);
      const { item_count, hold_amount, estimated_cost } = item.batch;
      const usual = (part === "cost" ? estimated_cost : hold_amount) / item_count;
      const price = listed && imagePrice(listed, askedOf(item.options))[part];
      return sum + (price === undefined ? usual : microsToNumber(price));
    }, 0);
  const hold = sumOf("hold", items);
  return (
    <ConfirmDialog
      title={`Make ${counted(items.length, "failed image")} again?`}
      action={isPaid ? `Pay up to ${usd(hold, "limit")}` : "Make again"}
      isReady={models.value !== null}
      onClose={onClose}
      onConfirm={async () => {
        const batches = groupBy(items, ({ batch }) => batch.id);
        for (const [id, own] of batches) {
          const customIds = own.map(({ custom_id }) => custom_id);
          const maxCost = own.some((item) => listedOf(item)?.pricing.paid) ? sumOf("hold", own) : null;
          await retryBatch(id, customIds, { idempotencyKey: `${idempotencyKey}-${id}`, maxCost });
          for (const item of own) retried.add(failureOf(item));
        }
        onChanged();
        announce("The failed images are made again.");
      }}
    >
      <p>
        {items.length === 1 ? "It takes its" : "They take their"} old{" "}
        {items.length === 1 ? "place" : "places"} in the gallery
        {isPlay
          ? `: ${FREE_DRAWINGS}.`
          : `. ${items.length === 1 ? "It costs" : "They cost"} about ${usd(sumOf("cost", items), "limit")}, and ${usd(hold, "limit")} is held until the end.`}
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
  const { image_size, quality } = options ?? {};
  const size = image_size && readImageSize(image_size);
  return { ...(size ? { size } : {}), ...(quality ? { quality } : {}) };
}

/** Asks which parts of ended batches to delete. */
function DeleteDialog(props: {
  batches: readonly BatchObject[];
  onChanged: () => void;
  onClose: () => void;
}) {
  const { batches, onChanged, onClose } = props;
  const made = batches.filter(
    ({ status, success_count }) => status !== "output_deleted" && success_count > 0,
  );
  const hasOutputs = made.length > 0;
  const [outputs, setOutputs] = useState(hasOutputs);
  const [record, setRecord] = useState(!hasOutputs);
  return (
    <ConfirmDialog
      title="Delete from the service?"
      action="Delete"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        if (outputs) for (const { id } of made) await send(routes.outputs(id), { method: "DELETE" });
        if (record) for (const { id } of batches) await send(routes.batch(id), { method: "DELETE" });
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
 * Downloads all images: as the service's ZIP where it has just these, else as one that the page makes, or as several where there
 * are more images than the service puts into one. `items` is null before all of them are known.
 */
function DownloadButton({
  batches,
  items,
}: {
  batches: readonly BatchObject[];
  items: readonly PlacedItem[] | null;
}) {
  const { zipItems } = useLimits();
  const images = items?.filter(canSave) ?? null;
  const [first] = batches;
  if (first && batches.length === 1 && first.success_count <= zipItems)
    return <SaveButton label="Download ZIP" save={() => followZip(first)} />;
  const zips = Math.ceil((images?.length || 1) / zipItems);
  return <SaveButton label={zips === 1 ? "Download ZIP" : `Download ${zips} ZIPs`} images={images} />;
}

/** Saves images, and shows how many of them are there. `save` saves them in another way, which reports no number. */
function SaveButton(props: {
  label: string;
  images?: readonly PlacedItem[] | null;
  save?: () => Promise<void>;
}) {
  const { label, images, save } = props;
  const { zipItems } = useLimits();
  const [done, setDone] = useState<number | null>(null);
  const start = async () => {
    setDone(0);
    try {
      const name = images?.[0]?.batch.task_name ?? "";
      if (save) await save();
      else if (images) await saveImages(images, { name, zipItems, onDone: setDone });
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

async function followZip({ id, task_name }: BatchObject): Promise<void> {
  // The ticket counts, not the address that the service goes by: the page may be open under another one.
  const { url } = await fetchJson<ConsoleBody<"Ticket">>(routes.ticket(id), { method: "POST" });
  const { search } = new URL(url);
  saveLink(urlOf(routes.ticketDownload(id) + search), `${fileStem(task_name)}.zip`);
}

export interface BatchActionsProps {
  batches: readonly BatchObject[];
  /** Null before all of them are known. */
  items: readonly PlacedItem[] | null;
  onChanged: () => void;
}

/** The buttons for batches and their retries, as their statuses allow. */
export function BatchActions({ batches, items, onChanged }: BatchActionsProps) {
  const [question, setQuestion] = useState<"cancel" | "retry" | "delete" | null>(null);
  const close = () => setQuestion(null);
  const members = batches.flatMap(membersOf);
  const open = members.filter(({ status }) => !isTerminal(status));
  const hasEnded = open.length === 0;
  const hasFiles = members.some(
    ({ status, success_count }) => success_count > 0 && status !== "output_deleted",
  );
  const stopped = open.filter(({ waiting }) => waiting?.code === "STOPPED");
  const goOn = async () => {
    for (const { id } of stopped) await send(routes.goOn(id), { method: "POST" });
    announce(stopped.length === 1 ? "The batch goes on." : `${stopped.length} batches go on.`);
    onChanged();
  };
  const retriable = retriableOf(items ?? []);
  const failed = items?.filter(({ status }) => status === "failed").length ?? 0;
  return (
    <div className="actions">
      {hasEnded && hasFiles && <DownloadButton batches={members} items={items} />}
      {retriable.length > 0 && (
        <button type="button" className="button" onClick={() => setQuestion("retry")}>
          <Icon name="retry" /> Retry {count(retriable.length)}
          {retriable.length < failed && ` of ${count(failed)}`} failed
        </button>
      )}
      {stopped.length > 0 && (
        <button
          type="button"
          className="button"
          onClick={() => goOn().catch((error) => announce(error.message))}
        >
          <Icon name="retry" /> Go on
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
      {question === "cancel" && <CancelDialog batches={open} onChanged={onChanged} onClose={close} />}
      {question === "retry" && <RetryDialog chosen={items ?? []} onChanged={onChanged} onClose={close} />}
      {question === "delete" && <DeleteDialog batches={members} onChanged={onChanged} onClose={close} />}
    </div>
  );
}

function CancelDialog(props: {
  batches: readonly BatchObject[];
  onChanged: () => void;
  onClose: () => void;
}) {
  const { batches, onChanged, onClose } = props;
  const made = batches.reduce((sum, { success_count }) => sum + success_count, 0);
  const what = batches.length === 1 ? "batch" : `${batches.length} batches`;
  return (
    <ConfirmDialog
      title={batches.length === 1 ? "Cancel this batch?" : `Cancel these ${what}?`}
      action={`Cancel the ${what}`}
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        for (const { id } of batches) await send(routes.cancel(id), { method: "POST" });
        announce("Nothing more is sent. Requests that have left are awaited, and their images stay.");
        onChanged();
      }}
    >
      <p>
        {counted(made, "finished image")} {made === 1 ? "stays" : "stay"} and {made === 1 ? "is" : "are"}{" "}
        paid. The rest of what is held goes back.
      </p>
    </ConfirmDialog>
  );
}

interface SelectionBarProps {
  items: readonly PlacedItem[];
  selected: ReadonlySet<string>;
  onSelectAll: () => void;
  onClear: () => void;
  /** Images were deleted, or are made again. */
  onChanged: () => void;
}

/** The buttons for the selected images. Absent while none is selected. */
export function SelectionBar(props: SelectionBarProps) {
  return props.selected.size === 0 ? null : <Buttons {...props} />;
}

function Buttons(props: SelectionBarProps) {
  const { items, selected, onSelectAll, onClear, onChanged } = props;
  const [question, setQuestion] = useState<"retry" | "delete" | null>(null);
  useEffect(
    () => () => {
      if (document.activeElement === document.body) document.getElementById("main")?.focus();
    },
    [],
  );
  const chosen = items.filter(({ key }) => selected.has(key));
  const images = chosen.filter(canSave);
  const retriable = retriableOf(chosen);
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
          <SaveButton label={`Download ${count(images.length)}`} images={images} />
        )}
        {retriable.length > 0 && (
          <button type="button" className="button" onClick={() => setQuestion("retry")}>
            <Icon name="retry" /> Retry {count(retriable.length)}
          </button>
        )}
        {images.length > 0 && images.every(({ batch }) => batch.source === "batch") && (
          <button type="button" className="button" onClick={() => setQuestion("delete")}>
            <Icon name="trash" /> Delete {count(images.length)}
          </button>
        )}
      </section>
      {question === "retry" && <RetryDialog chosen={chosen} onChanged={onChanged} onClose={close} />}
      {question === "delete" && (
        <ConfirmDialog
          title={`Delete ${counted(images.length, "image")}?`}
          action="Delete"
          isDangerous
          onClose={close}
          onConfirm={async () => {
            try {
              for (const { batch, custom_id } of images)
                await send(routes.content(batch.id, custom_id), { method: "DELETE" });
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
