import { expect, it } from "vitest";
import { processResults, startProcessing } from "../../../src/domain/batches/end-batch.ts";
import { finishItem, groupFinishes } from "../../../src/domain/batches/finish-item.ts";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

it("an image that appears while the others are read back is read, too, before its batch goes on", async () => {
  const { stores, blobs } = await openBeside(await tempDir());
  const batch = await openBatchRecord(stores, 1);
  const { id } = batch;
  await stores.write((tx) => tx.items.insertMany(id, [newItem(0)]));
  await startBatch(stores, id, 2);
  const claim = { token: "t", worker: "w", nowMs: 2, provider: "p", upstream: "u", isPaid: false, limit: 1 };
  const [item] = await stores.write((tx) => tx.items.claim(id, { ...claim, which: "any", mostSwitches: 2 }));
  if (item === undefined) throw new Error("nothing was claimed");
  const facts = { mimeType: "image/png", widthPx: 1, heightPx: 1, decodedPixels: 1 } as const;
  await finishItem(
    { stores, blobs, finishes: groupFinishes(stores) },
    batch,
    { ...item, leaseToken: "t" },
    { images: [{ image: Buffer.from("image"), facts }], modelVersion: null },
    () => 3,
  );
  await startProcessing(stores, id, "w", 4);
  const { outputs } = stores.read;
  let reads = 0;
  const early: Stores = {
    ...stores,
    read: {
      ...stores.read,
      outputs: {
        ...outputs,
        ofItem: (itemId) => outputs.ofItem(itemId),
        ofBatch: async (batchId) => (reads++ === 0 ? [] : outputs.ofBatch(batchId)),
      },
    },
  };
  expect(await processResults({ stores: early, blobs }, id, () => 5)).toBe(true);
  expect(await stores.read.batches.byId(id)).toMatchObject({ status: "settling", successCount: 1 });
});
