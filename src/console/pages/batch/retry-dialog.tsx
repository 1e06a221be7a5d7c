import { useMemo } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { isRefusalCode, isTerminal } from "../../../contract/statuses.ts";
import { FREE_DRAWINGS } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { batchModels, retryBatch } from "../../api/batches.ts";
import { randomId } from "../../api/sign-in.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce } from "../../parts/notes.tsx";
import { usd } from "../../parts/status.tsx";
import { useData } from "../../parts/use-data.ts";
import { go, hrefOf } from "../../parts/use-route.ts";

/**
 * Returns the failed items of a batch that can be made again. It leaves out those whose content was refused, and those
 * that another batch makes again.
 */
export function retriableOf(batch: BatchObject, items: readonly ItemObject[]): ItemObject[] {
  if (!isTerminal(batch.status) || batch.source !== "batch") return [];
  return items.filter((item) => isRetriable(item) && !item.retried_in);
}

/** Returns how many items failed because their content was refused. */
export function countRefused(items: readonly ItemObject[]): number {
  return items.filter((item) => item.status === "failed" && !isRetriable(item)).length;
}

function isRetriable({ status, error }: ItemObject): boolean {
  return status === "failed" && !isRefusalCode(error?.code ?? "");
}

/** Asks before failed items are made again. `leftOut` is the number of refused ones, which are not. */
export function RetryDialog(props: {
  batch: BatchObject;
  items: readonly ItemObject[];
  leftOut: number;
  onClose: () => void;
}) {
  const { batch, items, leftOut, onClose } = props;
  const { id, item_count, hold_amount, estimated_cost, model } = batch;
  // One key for the question: confirmed twice, it makes one batch.
  const idempotencyKey = useMemo(randomId, []);
  const models = useData("models", batchModels);
  const pricing = models.value?.find((each) => each.id === model)?.pricing;
  const isPlay = pricing?.play_money ?? batch.play_money;
  const price = items.length * (pricing?.batch_image ?? estimated_cost / item_count);
  const hold = items.length * (pricing?.batch_hold ?? hold_amount / item_count);
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
          : `. It costs about ${usd(price, "limit")}, and ${usd(hold, "limit")} is held until it has ended.`}
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
