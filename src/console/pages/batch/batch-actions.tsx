import { useMemo, useState } from "react";
import type { BatchObject } from "../../../contract/batch-api/batches.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { counted } from "../../../kernel/text.ts";
import { batchModels, cancelBatch, retryBatch } from "../../api/batches.ts";
import { randomId } from "../../api/sign-in.ts";
import { useData } from "../../hooks/use-data.ts";
import { go, hrefOf } from "../../hooks/use-route.ts";
import { announce } from "../../parts/announcer.tsx";
import { ConfirmDialog } from "../../parts/confirm-dialog.tsx";
import { Icon } from "../../parts/icons.tsx";
import { usd } from "../../parts/words.ts";
import { DeleteDialog } from "./delete-dialog.tsx";
import { DownloadButton } from "./download-button.tsx";

type Question = "cancel" | "retry" | "delete";

export interface BatchActionsProps {
  batch: BatchObject;
  /** Failed items that may succeed when they are made again. */
  retriable: number;
  onChanged: () => void;
}

/** The buttons for a batch in its status. */
export function BatchActions({ batch, retriable, onChanged }: BatchActionsProps) {
  const [question, setQuestion] = useState<Question | null>(null);
  const close = () => setQuestion(null);
  const hasEnded = isTerminal(batch.status);
  const canRetry = hasEnded && retriable > 0 && batch.source === "batch";
  return (
    <div className="actions">
      {hasEnded && batch.success_count > 0 && batch.status !== "output_deleted" && (
        <DownloadButton batch={batch} />
      )}
      {canRetry && (
        <button type="button" className="button" onClick={() => setQuestion("retry")}>
          <Icon name="retry" /> Retry {retriable} failed
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
      {question === "retry" && <RetryDialog batch={batch} retriable={retriable} onClose={close} />}
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

function RetryDialog(props: { batch: BatchObject; retriable: number; onClose: () => void }) {
  const { batch, retriable, onClose } = props;
  const { id, item_count, hold_amount, estimated_cost, model } = batch;
  // One key for the question: confirmed twice, it makes one batch.
  const idempotencyKey = useMemo(randomId, []);
  const models = useData("models", batchModels);
  const pricing = models.value?.find((each) => each.id === model)?.pricing;
  const price = retriable * (pricing?.batch_image ?? estimated_cost / item_count);
  const hold = retriable * (pricing?.batch_hold ?? hold_amount / item_count);
  return (
    <ConfirmDialog
      title={`Make ${counted(retriable, "failed image")} again?`}
      action={pricing?.paid ? `Pay up to ${usd(hold)}` : "Make again"}
      onClose={onClose}
      onConfirm={async () => {
        const retry = await retryBatch(id, { idempotencyKey, maxCost: pricing?.paid ? hold : null });
        announce("A new batch makes the failed images again.");
        go(hrefOf("batches", retry.id));
      }}
    >
      <p>
        A new batch is made of them, linked to this one. It costs about {usd(price)}, and {usd(hold)} is held
        until it has ended.
      </p>
      {retriable < batch.fail_count && (
        <p>Prompts that were refused for what they ask are left out: they would be refused again.</p>
      )}
    </ConfirmDialog>
  );
}
