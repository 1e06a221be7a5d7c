import type { ItemError } from "../../contract/statuses.ts";
import { priceOf } from "../billing/payer.ts";
import { type CheckedContent, outputSeed } from "../checked-content.ts";
import { imagePriceUsd, type ModelEntry } from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import { DEFAULT_OPTIONS, type ImageOptions } from "../ports/image-provider.ts";
import type { NewItem, Transaction } from "../ports/stores.ts";
import { type BatchRecord, MASK_ORDINAL, type NewReference } from "../records.ts";
import { holdFor } from "./lifecycle.ts";

/** Where the reference images of a batch are kept. */
export function inputsPrefix(batchId: string): string {
  return `inputs/${batchId}/`;
}

/** The items of a batch before they are written, and their sums. Items of the batch API and lines of jobs come in here. */
export class ItemsDraft {
  readonly items: NewItem[] = [];
  readonly references: NewReference[] = [];
  /** How many contents the items came from, failed lines included. */
  sources = 0;
  estimatedMicroUsd = 0;
  holdMicroUsd = 0;
  readonly #batch: Pick<BatchRecord, "id" | "price">;
  readonly #model: ModelEntry;
  readonly #prices = new Map<string, BatchRecord["price"]>();
  readonly #stored = new Set<string>();

  constructor(batch: Pick<BatchRecord, "id" | "price">, model: ModelEntry) {
    this.#batch = batch;
    this.#model = model;
  }

  /** Adds an item for each id: the outputs of one content, each with its own seed. */
  add(content: CheckedContent, customIds: readonly string[], clientKey: string | null = null): void {
    const { prompt, earlier, options, verbatim = null } = content;
    const { imageMicroUsd, holdMicroUsd } = this.#priceOf(options);
    const sourceIndex = this.sources++;
    for (const [outputIndex, customId] of customIds.entries()) {
      const seed = outputSeed(options, outputIndex);
      this.items.push({
        position: this.items.length,
        sourceIndex,
        outputIndex,
        customId,
        prompt,
        options: seed === options.seed ? options : { ...options, seed },
        earlier,
        verbatim,
        priceMicroUsd: imageMicroUsd,
        holdMicroUsd,
        clientKey,
      });
      this.estimatedMicroUsd += imageMicroUsd;
      this.holdMicroUsd += holdMicroUsd;
    }
  }

  /** Adds an item that is not made, because of its content. It costs nothing. */
  addFailed(customId: string, clientKey: string | null, failed: { error: ItemError; atMs: number }): void {
    this.items.push({
      position: this.items.length,
      sourceIndex: this.sources++,
      outputIndex: 0,
      customId,
      prompt: "",
      options: DEFAULT_OPTIONS,
      earlier: "",
      verbatim: null,
      priceMicroUsd: 0,
      holdMicroUsd: 0,
      clientKey,
      failed,
    });
  }

  /** Stores the input images of a content, each once for all contents. Rejects with the error of an image that is gone. */
  async storeImages(blobs: BlobStore, { images, mask }: CheckedContent, sourceIndex: number): Promise<void> {
    const references: NewReference[] = [];
    const masks = mask ? ([[MASK_ORDINAL, mask]] as const) : [];
    for (const [ordinal, image] of [...masks, ...images.entries()]) {
      const { id: referenceId, type, mimeType, sha256 } = image;
      const blobKey = `${inputsPrefix(this.#batch.id)}${sha256}`;
      if (!this.#stored.has(blobKey)) await image.keepAs(blobs, blobKey);
      this.#stored.add(blobKey);
      references.push({ sourceIndex, ordinal, referenceId, type, mimeType, blobKey, sha256 });
    }
    this.references.push(...references);
  }

  /** An item of another size or quality than its batch has a price of its own. */
  #priceOf({ size, quality }: ImageOptions): BatchRecord["price"] {
    const name = `${size} ${quality}`;
    const known = this.#prices.get(name);
    if (known) return known;
    const { basis } = this.#batch.price;
    const modelPriceUsd = imagePriceUsd(this.#model, size, quality) ?? basis.modelPriceUsd;
    const price = priceOf({ ...basis, modelPriceUsd });
    this.#prices.set(name, price);
    return price;
  }
}

/** Writes the items of a batch and places its hold, in the transaction that has written or locked the batch. */
export async function writeItems(
  tx: Transaction,
  batch: BatchRecord,
  { items, references }: ItemsDraft,
  nowMs: number,
  hold: { isGranted: boolean },
): Promise<void> {
  await tx.items.insertMany(batch.id, items);
  await tx.references.insertMany(batch.id, references);
  await holdFor(tx, batch, nowMs, hold);
}
