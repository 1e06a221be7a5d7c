import { expect, it, vi } from "vitest";
import { finishItem, groupFinishes } from "../../../src/domain/batches/finish-item.ts";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import type { BlobStore } from "../../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const facts = { mimeType: "image/png", widthPx: 1, heightPx: 1, decodedPixels: 1 } as const;

it("images that are made at the same time are recorded in one transaction, without those whose lease was lost", async () => {
  const { stores, blobs } = await openBeside(await tempDir());
  const batches = [await openBatchRecord(stores, 3), await openBatchRecord(stores, 2)];
  const claim = { token: "t", worker: "w", nowMs: 2, provider: "p", isPaid: false, limit: 3 } as const;
  const items = [];
  for (const { id, itemCount } of batches) {
    const some = Array.from({ length: itemCount }, (_, at) => ({
      ...{ position: at, sourceIndex: at, outputIndex: 0, customId: `i${at}`, prompt: "a fox" },
    }));
    await stores.write((tx) => tx.items.insertMany(id, some));
    await startBatch(stores, id, 2);
    const which = { which: "any", mostSwitches: 2 } as const;
    items.push(...(await stores.write((tx) => tx.items.claim(id, { ...claim, ...which }))));
  }
  let [writes, put] = [0, 0];
  const counting: Stores = {
    ...stores,
    // A slow disk could let each image come alone.
    write: async (work) => {
      writes++;
      await vi.waitUntil(() => put === items.length, 30_000);
      return stores.write(work);
    },
  };
  const counted: BlobStore = Object.create(blobs, {
    put: { value: (key: string, bytes: Buffer) => blobs.put(key, bytes).finally(() => put++) },
  });
  const deps = {
    stores: counting,
    blobs: counted,
    finishes: groupFinishes(counting),
  };
  const ends = await Promise.all(
    items.map((item, at) => {
      const leased = { ...item, leaseToken: at === 1 ? "lost" : "t" };
      const images = [{ image: Buffer.from(`${item.id}`), facts }];
      const batch = batches[at < 3 ? 0 : 1] as (typeof batches)[0];
      return finishItem(deps, batch, leased, { images, modelVersion: null }, () => 3);
    }),
  );
  expect(ends).toEqual(["success", null, "success", "success", "success"]);
  expect(writes).toBeLessThan(items.length);
  const counts = await Promise.all(batches.map(({ id }) => stores.read.batches.byId(id)));
  expect(counts.map((batch) => batch?.successCount)).toEqual([2, 2]);
  expect((await blobs.list("outputs/")).length).toBe(4);
  expect(await stores.read.providerCalls.list({})).toMatchObject([{ requests: 4, images: 4, errors: 0 }]);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});
