import { useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { counted } from "../../../kernel/text.ts";
import { cancelBatch } from "../../api/batches.ts";
import { announce } from "../../parts/announcer.tsx";
import { ConfirmDialog } from "../../parts/confirm-dialog.tsx";
import { Icon } from "../../parts/icons.tsx";
import { count } from "../../parts/words.ts";
import { DeleteDialog } from "./delete-dialog.tsx";
import { DownloadButton } from "./download-button.tsx";
import { countRefused, RetryDialog, retriableOf } from "./retry-dialog.tsx";

type Question = "cancel" | "retry" | "delete";

export interface BatchActionsProps {
  batch: BatchObject;
  /** Null before all of them are known. */
  items: ItemObject[] | null;
  onChanged: () => void;
}

/** The buttons for a batch in its status. */
export function BatchActions({ batch, items, onChanged }: BatchActionsProps) {
  const [question, setQuestion] = useState<Question | null>(null);
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
      {question === "retry" && (
        <RetryDialog batch={batch} items={retriable} leftOut={countRefused(items ?? [])} onClose={close} />
      )}
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
