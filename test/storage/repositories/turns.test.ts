import { expect, it } from "vitest";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import type { BatchRecord } from "../../../src/domain/records.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { openBatchRecord } from "../../support/stores.ts";

/** A batch of one item, of the key of the batch `like` or of a new key. */
async function batchOf(
  stores: Stores,
  like: Partial<Pick<BatchRecord, "apiKeyId" | "status" | "provider">> & { notBeforeMs?: number } = {},
): Promise<BatchRecord> {
  const { notBeforeMs = 0, ...facts } = like;
  const batch = await openBatchRecord(stores, 1, facts);
  const place = { position: 0, sourceIndex: 0, outputIndex: 0 };
  const item = { ...place, customId: "i", prompt: "a picture", notBeforeMs };
  await stores.write((tx) => tx.items.insertMany(batch.id, [item]));
  return batch;
}

onEachDialect("turns", (open) => {
  it("are those of the key that was served least recently, also when it was another batch of it", async () => {
    const stores = await open();
    const a = await batchOf(stores);
    const [b, c] = [await batchOf(stores), await batchOf(stores)];
    const serve = async (...ids: string[]) => {
      for (const id of ids) await stores.write((tx) => tx.batches.serve(id));
    };
    const keys = async () => (await stores.read.batches.queues()).map(({ apiKeyId }) => apiKeyId);
    await serve(a.id, b.id, c.id);
    expect(await keys()).toEqual([a.apiKeyId, b.apiKeyId, c.apiKeyId]);
    await serve(b.id);
    expect(await keys()).toEqual([a.apiKeyId, c.apiKeyId, b.apiKeyId]);
    await serve(a.id);
    await stores.write((tx) => tx.batches.changeStatus(a.id, "queued", "completed"));
    expect(await keys()).toEqual([c.apiKeyId, b.apiKeyId]);
    await batchOf(stores, { apiKeyId: a.apiKeyId });
    expect(await keys()).toEqual([c.apiKeyId, b.apiKeyId, a.apiKeyId]);
  });

  it("of batches with items that are due go round, and those of one with nothing to start are passed over", async () => {
    const stores = await open();
    const a = await batchOf(stores);
    const { apiKeyId, provider } = a;
    const [b, c] = [
      await batchOf(stores, { apiKeyId }),
      await batchOf(stores, { apiKeyId, notBeforeMs: 50 }),
    ];
    const next = (nowMs = 10) => stores.read.batches.nextOf({ apiKeyId, provider }, nowMs);
    expect(await next()).toEqual([a.id, b.id, c.id]);
    await stores.write((tx) => tx.batches.serve(a.id));
    expect(await next()).toEqual([b.id, c.id, a.id]);
    await stores.write((tx) => tx.batches.changeStatus(c.id, "queued", "running"));
    expect(await next()).toEqual([b.id, a.id]);
    expect(await next(50)).toEqual([b.id, c.id, a.id]);
    expect(await stores.read.items.nextDueMs(10)).toBe(50);
    expect(await stores.read.items.nextDueMs(50)).toBeNull();
  });
});
