import { type BatchObject, type ItemObject, PAID_TWICE_NOTE } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { ItemError } from "../../contract/statuses.ts";
import { type ShownJob, type Waiting, withUpstreamWords } from "../../contract/waiting.ts";
import { OPERATOR } from "../../domain/accounts.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { costOf } from "../../domain/batches/create-batch.ts";
import type { ListedItem } from "../../domain/ports/batches.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord, ReferenceRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";

/** The caller's batch. Throws the same `BATCH_IMAGE_NOT_FOUND` for another key's batch, a deleted record and an unknown id. */
export async function findBatch(stores: Stores, caller: Caller, id: unknown): Promise<BatchRecord> {
  const batch = await stores.read.batches.byId(String(id));
  const isTheirs = batch?.apiKeyId === caller.key.id || caller.key === OPERATOR;
  if (batch && isTheirs && batch.recordDeletedAtMs === null) return batch;
  throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND");
}

export async function findItem(stores: Stores, batch: BatchRecord, customId: unknown): Promise<ItemRecord> {
  const item = await stores.read.items.byCustomId(batch.id, String(customId));
  if (item) return item;
  throw new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND");
}

const seconds = (ms: number) => Math.floor(ms / 1000);
const secondsOrNull = (ms: number | null) => (ms === null ? null : seconds(ms));

const microsOrNull = (micros: number | null) => (micros === null ? null : microsToNumber(micros));

/**
 * A batch as the API shows it. `waiting`: why its items cannot be made now. `jobs`: those at work upstream. `queuedBehind`:
 * how many batches come first, where that was counted. `isOwner`: the upstream's own words are shown, too.
 */
function batchView(
  batch: BatchRecord,
  waiting: Waiting | null,
  jobs: readonly ShownJob[],
  queuedBehind: number | null,
  isOwner: boolean,
): BatchObject {
  return {
    id: batch.id,
    object: "image.batch",
    task_name: batch.taskName,
    status: batch.status,
    model: batch.model,
    parent_batch_id: batch.parentBatchId,
    metadata: batch.metadata,
    provider: batch.provider,
    item_count: batch.itemCount,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    pending_count: batch.itemCount - batch.successCount - batch.failCount,
    estimated_cost: microsToNumber(batch.estimatedMicroUsd),
    hold_amount: microsToNumber(batch.holdMicroUsd),
    actual_cost: batch.actualMicroUsd === null ? null : microsToNumber(batch.actualMicroUsd),
    play_money: batch.price.isPlay === true,
    created_at: seconds(batch.createdAtMs),
    submitted_at: seconds(batch.submittedAtMs),
    settled_at: secondsOrNull(batch.settledAtMs),
    downloaded_at: secondsOrNull(batch.downloadedAtMs),
    output_deleted_at: secondsOrNull(batch.outputDeletedAtMs),
    expires_at: secondsOrNull(batch.outputsExpireAtMs),
    error: batch.error,
    source: batch.source,
    waiting: waiting && {
      code: waiting.code,
      message: waiting.message,
      until: waiting.untilMs === null ? null : Math.ceil(waiting.untilMs / 1000),
      ...(waiting.said && isOwner ? { said: waiting.said } : {}),
    },
    queued_behind: queuedBehind,
    upstream_jobs: jobs.map(({ createdAtMs, ...job }) => ({ ...job, created_at: seconds(createdAtMs) })),
  };
}

/** Returns a batch as the API shows it, with why it waits and its jobs as they are now. */
export async function showBatch(
  deps: Pick<ApiDeps, "stores" | "waitingOf" | "jobsOf" | "isOwnerKey" | "operatorToken">,
  batch: BatchRecord,
  queuedBehind: number | null = null,
): Promise<BatchObject> {
  const view = batchView(
    batch,
    deps.waitingOf(batch),
    await deps.jobsOf(batch),
    queuedBehind,
    deps.isOwnerKey(batch.apiKeyId),
  );
  if (deps.operatorToken === null) return view;
  // The live view shows the cost before the settlement, and times to the millisecond.
  return {
    ...view,
    actual_cost: microsToNumber(await costOf(deps.stores.read, batch)),
    created_at: batch.createdAtMs / 1000,
    settled_at: batch.endedAtMs === null ? null : batch.endedAtMs / 1000,
  };
}

/** Facts of an item that the list has when it is asked for them. */
export interface ItemDetails {
  prompt?: string;
  references?: readonly ReferenceRecord[];
  outputs?: readonly OutputRecord[];
  retriedIn?: string | null;
}

function itemError({ code, message, source, said }: ItemError, isOwner: boolean): ItemObject["error"] {
  return { code, message: isOwner ? withUpstreamWords(message, said) : message, source };
}

/** Returns what an item asks for; null for nothing. */
function optionsOf(item: ListedItem): ItemObject["options"] {
  const options = {
    aspect_ratio: item.keepsRatio ? null : item.ratio,
    image_size: item.tier,
    quality: item.quality,
    background: item.background,
    seed: item.askedSeed,
    negative_prompt: item.negativePrompt,
  };
  const asked = Object.entries(options).filter(([, value]) => value !== null);
  return asked.length === 0 ? null : Object.fromEntries(asked);
}

/** An item of a batch as the item list shows it. `isOwner`: with the upstream's own words about a failure. */
export function itemView(
  { price }: Pick<BatchRecord, "price">,
  item: ListedItem,
  { prompt, references, outputs, retriedIn }: ItemDetails,
  isOwner: boolean,
): ItemObject {
  return {
    custom_id: item.customId,
    status: item.status,
    prompt_preview: truncateCodePoints(item.prompt, FIXED_LIMITS.promptPreviewChars, "…"),
    mime_type: item.mimeType,
    file_extension: item.mimeType && IMAGE_EXTENSIONS[item.mimeType],
    image_count: item.imageCount,
    model_version: item.modelVersion,
    provider: item.status === "pending" ? null : item.provider,
    seed: item.seed,
    options: optionsOf(item),
    upstream_cost: microsOrNull(item.usage?.costMicroUsd ?? null),
    notes: [...item.notes, ...(item.maybePaid === "twice" ? [PAID_TWICE_NOTE] : [])],
    error: item.error && itemError(item.error, isOwner),
    cost: item.status === "success" ? microsToNumber(item.priceMicroUsd ?? price.imageMicroUsd) : null,
    ...(prompt === undefined ? {} : { prompt }),
    ...(references && {
      references: references.map(({ referenceId: id, type, mimeType, storageUri }) => ({
        id,
        type,
        mime_type: mimeType,
        storage_uri: storageUri,
      })),
    }),
    ...(outputs && {
      images: outputs.map(({ mimeType, widthPx, heightPx, sizeBytes, sha256 }) => ({
        mime_type: mimeType,
        width: widthPx,
        height: heightPx,
        size: sizeBytes,
        sha256,
      })),
    }),
    ...(retriedIn === undefined ? {} : { retried_in: retriedIn }),
  };
}
