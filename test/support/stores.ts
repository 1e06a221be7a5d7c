import { NEW_BATCH } from "../../src/domain/batches/create-batch.ts";
import { hasItems, holdFor, openBatch } from "../../src/domain/batches/lifecycle.ts";
import { NO_NEEDS } from "../../src/domain/checked-content.ts";
import { DEFAULT_OPTIONS } from "../../src/domain/ports/image-provider.ts";
import type { NewItem, Stores } from "../../src/domain/ports/stores.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { FakeClock } from "./fake-clock.ts";
import { openBeside, openKey } from "./service.ts";
import { tempDir } from "./temp-dir.ts";

/** Stores over a real database in a directory of its own. */
export async function openStores(): Promise<Stores> {
  return (await openBeside(await tempDir())).stores;
}

/** Makes a worker that is alive until it is removed. Returns its id. */
export async function joinAs(stores: Stores, id: string): Promise<string> {
  const worker = { id, role: "api" as const, version: "1", providers: [], isPaused: false };
  await stores.write((tx) => tx.workers.insert(worker));
  return id;
}

/** A queued batch of `itemCount` images at 10 each, 12 held, on an account with 1000 micro-dollars. */
export async function openBatchRecord(
  stores: Stores,
  itemCount = 5,
  change: Partial<BatchRecord> = {},
): Promise<BatchRecord> {
  const facts = { account: "test", balanceMicroUsd: 1000, clock: new FakeClock() };
  const { id: apiKeyId, accountId } = await openKey(stores, facts);
  return stores.write(async (tx) => {
    const batch: BatchRecord = {
      ...NEW_BATCH,
      id: randomIds.batchId(),
      apiKeyId,
      accountId,
      taskName: "test",
      model: "m",
      mimeType: "image/png",
      parentBatchId: null,
      metadata: null,
      provider: "p",
      itemCount,
      price: {
        imageMicroUsd: 10,
        holdMicroUsd: 12,
        basis: {
          modelPriceUsd: 0.00002,
          groupMultiplier: 1,
          providerMultiplier: 1,
          batchDiscount: 0.5,
          holdMultiplier: 0.6,
        },
      },
      estimatedMicroUsd: 10 * itemCount,
      holdMicroUsd: 12 * itemCount,
      createdAtMs: 1,
      submittedAtMs: 1,
      inputsPurgedAtMs: null,
      upstream: "procedural",
      needs: NO_NEEDS,
      source: "batch",
      input: null,
      ...change,
    };
    await openBatch(tx, batch, 1);
    if (hasItems(batch)) await holdFor(tx, batch, 1);
    return batch;
  });
}

/** An item as it is first written, at the price of `openBatchRecord`. */
export function newItem(position: number, change: Partial<NewItem> = {}): NewItem {
  return {
    position,
    sourceIndex: position,
    outputIndex: 0,
    customId: `i${position}`,
    prompt: "a picture",
    options: DEFAULT_OPTIONS,
    earlier: "",
    verbatim: null,
    priceMicroUsd: 10,
    holdMicroUsd: 12,
    clientKey: null,
    ...change,
  };
}
