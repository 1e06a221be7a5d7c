import { ImgbatchError } from "../../contract/errors.ts";
import type { ImageSize } from "../../contract/image-formats.ts";
import { expandedCustomIds } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import { cannotPay, type Payer, payerOf, priceBatchImage } from "../billing/payer.ts";
import { needsOf } from "../checked-content.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import {
  type GroupEntry,
  identityOf,
  imagePriceUsd,
  isPaid,
  type ModelEntry,
  type Offers,
  unmetNeed,
} from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Needs } from "../ports/image-provider.ts";
import type { Repositories, Stores } from "../ports/stores.ts";
import type { ApiKeyRecord, BatchRecord, GoesOn } from "../records.ts";
import type { CheckedItem, CheckedRequest } from "./checked-request.ts";
import { openBatch } from "./lifecycle.ts";
import { ItemsDraft, inputsPrefix, writeItems } from "./write-items.ts";

export interface CreateBatchDeps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  ids: Ids;
  /** The offers of the providers that are used for batches. */
  offers: Offers;
  /** Whether new batches are taken: workers run, or the operator lets batches wait for them. */
  takesBatches(): Promise<boolean>;
  /** Who works on new batches. */
  goesOn: Exclude<GoesOn, "no">;
}

export interface Caller {
  key: ApiKeyRecord;
  /**
   * The most that the person at this machine agrees to pay for the request, in micro-dollars. Default: null, no agreement.
   * Then the account pays.
   */
  consentMicroUsd?: number | null;
  group: GroupEntry;
}

interface Asked {
  model: ModelEntry;
  /** Null when the caller gave none. */
  taskName: string | null;
  /** The abilities that a provider must have. Default: the model alone. */
  needs?: Needs;
  /** The size of an image. Default: 1K. */
  size?: ImageSize | undefined;
  /** The name of the provider that is to make the images. Default: the first that serves the model. */
  provider?: string | null;
}

/**
 * Returns who pays for a new batch, and its record as far as its items do not matter. Nothing is written. Throws
 * `BATCH_IMAGE_SETTLEMENT_PRICING_MISSING`, `BATCH_IMAGE_NO_ACCOUNT_AVAILABLE` and `BATCH_IMAGE_QUEUE_FAILED`.
 */
export async function newBatch(
  deps: Omit<CreateBatchDeps, "blobs">,
  caller: Caller,
  { model, taskName, needs, size, provider = null }: Asked,
) {
  const offer = deps.offers.first(model.id, needs, provider);
  const payer = offer && (await payerOf(deps, caller, offer));
  const price = priceBatchImage(model, caller.group, payer?.rateMultiplier ?? 1, {
    size,
    kind: offer?.provider.kind,
  });
  if (!price) throw new ImgbatchError("BATCH_IMAGE_SETTLEMENT_PRICING_MISSING");
  if (!offer || !payer) throw new ImgbatchError("BATCH_IMAGE_NO_ACCOUNT_AVAILABLE");
  if (!(await deps.takesBatches())) throw new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED");
  const nowMs = deps.clock.nowMs();
  const batch = {
    ...NEW_BATCH,
    goesOn: deps.goesOn,
    id: deps.ids.batchId(),
    apiKeyId: caller.key.id,
    accountId: payer.account.id,
    taskName: taskName ?? generatedTaskName(nowMs),
    model: model.id,
    provider: offer.provider.name,
    price: {
      ...price,
      ...(payer.isPlay && { isPlay: true as const }),
      ...(!isPaid(offer.provider) && { isFree: true as const }),
    },
    createdAtMs: nowMs,
    submittedAtMs: nowMs,
    upstream: identityOf(offer.provider),
  };
  return { payer, batch };
}

/**
 * Accepts a checked request: reference images are stored first, then one transaction writes the batch, its items, its
 * idempotency key and its hold. Two concurrent requests with the same key make one batch, and both return it. `replayed`:
 * it is an earlier batch that the same idempotency key made.
 */
export async function createBatch(
  deps: CreateBatchDeps,
  caller: Caller,
  request: CheckedRequest,
  idempotencyKey: string | null,
): Promise<{ batch: BatchRecord; replayed: boolean }> {
  const earlier = await replay(deps.stores.read, caller, request, idempotencyKey);
  if (earlier) return { batch: earlier, replayed: true };
  const parentBatchId = await findParent(deps.stores.read, caller, request.parentBatchId);

  const needs = needsOf(request.items);
  const { provider: named = null } = request;
  const serving = deps.offers
    .serving(request.model.id)
    .filter(({ provider }) => named === null || provider.name === named);
  if (named !== null && serving.length === 0)
    throw new ImgbatchError(
      "BATCH_IMAGE_INVALID_MODEL",
      `provider: no provider ${JSON.stringify(named)} makes images with ${request.model.id} here.`,
      { param: "provider" },
    );
  const found = unmetNeed(serving, needs);
  if (found !== null) {
    const { about, problem } = found;
    const areTooMany = about === "references";
    const most = request.items.findIndex(({ images }) => images.length === needs.references);
    const param = areTooMany ? `items[${most}].reference_images` : "items";
    const code = areTooMany ? "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES" : "BATCH_IMAGE_INVALID_ITEMS";
    throw new ImgbatchError(code, `${param}: ${problem}`, { param });
  }
  const { payer, batch: opened } = await newBatch(deps, caller, { ...request, needs });
  const { id, createdAtMs: nowMs } = opened;
  const hasNoPrice = ({ options: { size, quality } }: CheckedItem) =>
    imagePriceUsd(request.model, size, quality) === undefined;
  if (request.items.some(hasNoPrice)) throw new ImgbatchError("BATCH_IMAGE_SETTLEMENT_PRICING_MISSING");
  const draft = new ItemsDraft(opened, request.model);
  for (const item of request.items) draft.add(item, expandedCustomIds(item.customId, item.outputCount));
  const hasImages = request.items.some(({ images }) => images.length > 0);
  const batch: BatchRecord = {
    ...opened,
    mimeType: request.mimeType,
    parentBatchId,
    metadata: request.metadata,
    itemCount: draft.items.length,
    estimatedMicroUsd: draft.estimatedMicroUsd,
    holdMicroUsd: draft.holdMicroUsd,
    needs,
    // Without references there is nothing to purge.
    inputsPurgedAtMs: hasImages ? null : nowMs,
    source: "batch",
    input: null,
  };
  const refusal = refusalOf(payer, batch);
  if (refusal !== null) {
    // Another process may have just made the batch of this request, and its hold lowered the balance.
    const winner = await replay(deps.stores.read, caller, request, idempotencyKey);
    if (winner) return { batch: winner, replayed: true };
    throw refusal;
  }
  const save = async () => {
    for (const [at, item] of request.items.entries()) await draft.storeImages(deps.blobs, item, at);
    await deps.stores.write(async (tx) => {
      await openBatch(tx, batch, nowMs);
      if (idempotencyKey !== null) {
        const claim = { apiKeyId: caller.key.id, key: idempotencyKey, requestHash: request.hash };
        // Before the hold: that another request has made the batch counts more than that the balance is too low by now.
        if (!(await tx.idempotency.insert({ ...claim, batchId: id, createdAtMs: nowMs })).isNew) throw MADE;
      }
      await writeItems(tx, batch, draft, nowMs, { isGranted: payer.consentMicroUsd !== null });
    });
  };
  try {
    await commitOrUndo(save, async () => hasImages && deps.blobs.deleteAll(inputsPrefix(id)));
    return { batch, replayed: false };
  } catch (error) {
    // A commit that returned an error may have happened all the same.
    const known = await deps.stores.read.batches.byId(id);
    if (known) return { batch: known, replayed: false };
    const winner = error === MADE ? await replay(deps.stores.read, caller, request, idempotencyKey) : null;
    if (winner) return { batch: winner, replayed: true };
    throw error;
  }
}

/** Undoes a transaction because another one has made the batch of the same idempotency key. */
const MADE = new Error("another request has made the batch of this idempotency key");

/** Whether this idempotency key has made a batch. */
export async function isKnownKey(
  { idempotency }: Repositories,
  { key }: Caller,
  idempotencyKey: string | null,
): Promise<boolean> {
  return idempotencyKey !== null && (await idempotency.find(key.id, idempotencyKey)) !== null;
}

/**
 * Whether this idempotency key has made a batch of exactly this request: everything about it was checked then.
 */
export async function isKnownRequest(
  repositories: Repositories,
  caller: Caller,
  idempotencyKey: string | null,
  requestHash: string,
): Promise<boolean> {
  if (idempotencyKey === null) return false;
  return (await repositories.idempotency.find(caller.key.id, idempotencyKey))?.requestHash === requestHash;
}

async function replay(
  repositories: Repositories,
  caller: Caller,
  request: CheckedRequest,
  idempotencyKey: string | null,
): Promise<BatchRecord | null> {
  const known =
    idempotencyKey === null ? null : await repositories.idempotency.find(caller.key.id, idempotencyKey);
  if (!known) return null;
  const batch = await repositories.batches.byId(known.batchId);
  if (known.requestHash !== request.hash) throw new ImgbatchError("BATCH_IMAGE_IDEMPOTENCY_CONFLICT");
  if (!batch || batch.recordDeletedAtMs !== null) {
    const message = "The batch of this Idempotency-Key was deleted; use a new key.";
    throw new ImgbatchError("BATCH_IMAGE_IDEMPOTENCY_CONFLICT", message);
  }
  return batch;
}

/** The first ancestor: a retry of a retry links the batch that everything began with. */
async function findParent(
  repositories: Repositories,
  caller: Caller,
  parentId: string | null,
): Promise<string | null> {
  if (parentId === null) return null;
  const parent = await repositories.batches.byId(parentId);
  if (parent?.apiKeyId === caller.key.id && parent.recordDeletedAtMs === null) {
    refuseToRetryJob(parent, "parent_batch_id");
    return parent.parentBatchId ?? parent.id;
  }
  throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND", "parent_batch_id: no such batch", {
    param: "parent_batch_id",
  });
}

/** Avoids storing references for a batch that cannot be paid. The ledger makes the binding decision. */
function refusalOf(
  { account, isUpstream, consentMicroUsd }: Payer,
  { holdMicroUsd }: BatchRecord,
): ImgbatchError | null {
  if (holdMicroUsd <= (consentMicroUsd ?? account.balanceMicroUsd)) return null;
  const code = "BATCH_IMAGE_INSUFFICIENT_BALANCE";
  if (!isUpstream) return new ImgbatchError(code);
  return cannotPay(code, "The batch", holdMicroUsd, consentMicroUsd === null ? account : { consentMicroUsd });
}

/** Returns what the images of a batch cost so far, in micro-dollars; once it is settled, the final amount. */
export async function costOf(read: Repositories, batch: BatchRecord): Promise<number> {
  if (batch.actualMicroUsd !== null) return batch.actualMicroUsd;
  return (await read.items.sums(batch.id)).earnedMicroUsd;
}

/** The fields of a batch that has just been made. */
export const NEW_BATCH = {
  status: "queued",
  successCount: 0,
  failCount: 0,
  actualMicroUsd: null,
  endedAtMs: null,
  settledAtMs: null,
  downloadedAtMs: null,
  outputDeletedAtMs: null,
  outputsExpireAtMs: null,
  recordDeletedAtMs: null,
  outputsPurgedAtMs: null,
  error: null,
  waitingSinceMs: null,
  waiting: null,
  inputReadAtMs: null,
  goesOn: "always",
  cancelAskedAtMs: null,
} as const satisfies Partial<BatchRecord>;

/**
 * Throws `BATCH_IMAGE_INVALID_ITEMS` for a batch job of a vendor's API: its requests have more than a prompt and
 * references, so the batch API cannot make them again. `param` is the field that names the batch.
 */
export function refuseToRetryJob({ source }: Pick<BatchRecord, "source">, param?: string): void {
  if (source === "batch") return;
  const why =
    "is a batch job of a vendor's API, which is not retried here; send its failed lines as a new job";
  const message = param === undefined ? `The batch ${why}.` : `${param}: the batch ${why}`;
  throw new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message, { param });
}

/** Returns the name of a batch that was given none: when it was made. */
function generatedTaskName(nowMs: number): string {
  return new Date(nowMs).toISOString().slice(0, 19).replace("T", " ");
}
