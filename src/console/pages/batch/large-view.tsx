import { useRef, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { thumbnailPath } from "../../api/pictures.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { Icon } from "../../parts/icons.tsx";
import { RemotePicture } from "../../parts/picture.tsx";
import { useKeys } from "../../parts/use-keys.ts";
import { hasImages } from "./item-facts.ts";
import { ItemPanel } from "./item-panel.tsx";
import { RetryDialog, retriableOf } from "./retry-dialog.tsx";

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
    { inDialog: true, isActive: !isAsking },
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
          onClose={onClose}
        />
      </Dialog>
      {isAsking && (
        <RetryDialog batch={batch} items={retriable} leftOut={0} onClose={() => setAsking(false)} />
      )}
    </>
  );
}

function Stage(props: { batch: BatchObject; item: ItemObject; isFull: boolean; onToggle: () => void }) {
  const { batch, item, isFull, onToggle } = props;
  const stage = useRef<HTMLDivElement>(null);
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
    <div ref={stage} className={`stage ${isFull ? "full" : ""}`}>
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
