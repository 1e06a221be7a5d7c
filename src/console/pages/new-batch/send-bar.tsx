import { useState } from "react";
import type { BatchModel, BatchObject, CreateItemBody } from "../../../contract/batch-api.ts";
import { costText, formatUsd, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { wireOptions } from "../../../prompts/options.ts";
import { createBatch } from "../../api/batches.ts";
import { base64Of } from "../../api/files.ts";
import { ApiError } from "../../api/request.ts";
import { announce, ErrorNote } from "../../parts/notes.tsx";
import { batchesHref, go } from "../../parts/route.ts";
import { usd } from "../../parts/status.tsx";
import { useAccount } from "../../parts/use-data.ts";
import { type CheckedDraft, priceOf } from "./check-draft.ts";
import type { Draft, useDraft } from "./draft.tsx";

type DraftItem = CheckedDraft["batches"][number]["items"][number];

/**
 * Sends the batches of a draft. After a failure the same call goes on: batches that exist already are returned instead
 * of made again. Throws `ApiError`.
 */
export async function sendDraft(
  draft: Pick<Draft, "key" | "name">,
  parts: CheckedDraft["batches"],
  models: readonly BatchModel[],
): Promise<BatchObject[]> {
  const batches: BatchObject[] = [];
  for (const [index, { items, metadata }] of parts.entries()) {
    const name = draft.name.trim();
    const suffix = parts.length > 1 ? ` (${index + 1} of ${parts.length})` : "";
    const body = {
      model: items[0]?.model ?? "",
      ...(name === "" ? {} : { task_name: name + suffix }),
      ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
      items: await itemBodies(items),
    };
    const { hold, isPaid } = priceOf(items, models);
    const maxCost = isPaid ? microsToNumber(hold) : null;
    const idempotencyKey = parts.length > 1 ? `${draft.key}-${index + 1}` : draft.key;
    batches.push(await createBatch(body, { idempotencyKey, maxCost }));
  }
  return batches;
}

/** The bytes of a file stand in the body once: later references to it have its hash. */
async function itemBodies(items: readonly DraftItem[]): Promise<CreateItemBody[]> {
  const sent = new Set<string>();
  const bodies: CreateItemBody[] = [];
  for (const { customId, prompt, outputCount, references, ...item } of items) {
    const options = wireOptions(item.options);
    const images = [];
    for (const { labels, source, sha256 } of references) {
      if (sha256 !== undefined && sent.has(sha256)) {
        images.push({ ...labels, sha256 });
        continue;
      }
      const data = "blob" in source ? await base64Of(source.blob) : source.data;
      images.push({ ...labels, mime_type: source.mimeType, data });
      if (sha256 !== undefined) sent.add(sha256);
    }
    bodies.push({
      ...(customId === null ? {} : { custom_id: customId }),
      prompt,
      output_count: outputCount,
      ...(Object.keys(options).length === 0 ? {} : { options }),
      ...(images.length === 0 ? {} : { reference_images: images }),
    });
  }
  return bodies;
}

/** The price of the draft, and the button that sends it. */
export function SendBar(props: {
  state: ReturnType<typeof useDraft>;
  checked: CheckedDraft | null;
  /** The check is that of the draft as it is now. */
  isCurrent: boolean;
  models: readonly BatchModel[];
}) {
  const { state, checked, isCurrent, models } = props;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const isRight =
    checked !== null && checked.problemCount === 0 && checked.batches.length > 0 && models.length > 0;
  const canSend = isRight && isCurrent && state.lost.length === 0;
  const price = isRight ? checked.price : null;
  const send = async () => {
    if (!canSend) return;
    setBusy(true);
    setError(null);
    try {
      const batches = await sendDraft(state.draft, checked.batches, models);
      state.renew();
      announce(batches.length === 1 ? "The batch is sent." : `${batches.length} batches are sent.`);
      go(batchesHref(batches.map(({ id }) => id)));
    } catch (thrown) {
      setError(thrown as Error);
      setBusy(false);
    }
  };
  const isConflict = error instanceof ApiError && error.code === "BATCH_IMAGE_IDEMPOTENCY_CONFLICT";
  return (
    <div className="send">
      <ErrorNote error={error} />
      {isUnknown(error) && (
        <p className="quiet">
          It is not known whether the batch was taken. Send it again: nothing is paid twice.
        </p>
      )}
      {isConflict && (
        <p className="note warn">
          An earlier form of this draft was sent already: it is among your batches.
          <button
            type="button"
            className="button"
            onClick={() => {
              state.renewKey();
              setError(null);
            }}
          >
            Send this one as well
          </button>
        </p>
      )}
      <div className="send-line">
        <div className="price" role="status">
          {checked && checked.problemCount > 0 && (
            <button
              type="button"
              className="line-link"
              onClick={() => document.getElementById("problems")?.scrollIntoView({ block: "center" })}
            >
              {counted(checked.problemCount, "problem")} in the prompts
            </button>
          )}
          {isRight && price && (
            <>
              <b>{costText({ micros: price.cost, isPlay: price.isPlay }, "limit")}</b>
              <span className="quiet">
                {summaryOf(checked)}
                {!price.isPlay && (
                  <>
                    {` · ${formatUsd(price.hold, "limit")} held`}
                    <Balance isPaid={price.isPaid} />
                  </>
                )}
              </span>
            </>
          )}
        </div>
        <button type="button" className="button primary" disabled={!canSend || isBusy} onClick={send}>
          {isBusy
            ? "Sending…"
            : price?.isPaid
              ? `Pay up to ${formatUsd(price.hold, "limit")}`
              : "Make the images"}
        </button>
      </div>
    </div>
  );
}

function Balance({ isPaid }: { isPaid: boolean }) {
  const account = useAccount();
  // The owner's consent brings the real money.
  if (account === null || (isPaid && account.owner)) return null;
  return <> · balance {usd(((isPaid && account.real_money) || account).balance, "sum")}</>;
}

function summaryOf({ summary, imageCount, batches }: CheckedDraft): string {
  const images = summary ?? counted(imageCount, "image");
  return batches.length === 1 ? images : `${images} in ${batches.length} batches`;
}

/** After these the service may have taken the batch. */
function isUnknown(error: Error | null): boolean {
  return error instanceof ApiError && (error.status === 0 || error.status >= 500);
}
