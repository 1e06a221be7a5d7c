import { expect, it } from "vitest";
import { finishItem, groupFinishes } from "../../../src/domain/batches/finish-item.ts";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const facts = { mimeType: "image/png", widthPx: 1, heightPx: 1, decodedPixels: 1 } as const;

/** Items of batches that are claimed, all with the token `t`. */
async function claimedItems(stores: Stores, ...counts: number[]) {
  const batches = [];
  const items = [];
  const claim = {
    token: "t",
    worker: "w",
    nowMs: 2,
    provider: "p",
    upstream: "u",
    isPaid: false,
    limit: 3,
  } as const;
  for (const count of counts) {
    const batch = await openBatchRecord(stores, count);
    const { id } = batch;
    const some = Array.from({ length: count }, (_, at) => newItem(at));
    await stores.write((tx) => tx.items.insertMany(id, some));
    await startBatch(stores, id, 2);
    const which = { which: "any", mostSwitches: 2 } as const;
    items.push(...(await stores.write((tx) => tx.items.claim(id, { ...claim, ...which }))));
    batches.push(batch);
  }
  return { batches, items };
}

it("an outcome that cannot be recorded fails alone, but all wait for a database that cannot be used", async () => {
  const { stores, blobs } = await openBeside(await tempDir());
  const { batches, items } = await claimedItems(stores, 3);
  const [batch] = batches as [(typeof batches)[0]];
  let isAway = true;
  const away: Stores = {
    ...stores,
    write: (work) =>
      isAway ? Promise.reject(new StorageUnavailable("broken", "away", null)) : stores.write(work),
  };
  const deps = { stores: away, blobs, finishes: groupFinishes(away) };
  const finishAll = () =>
    Promise.allSettled(
      items.map((item, at) => {
        const bad = at === 1 ? { widthPx: null as never } : {};
        const images = [{ image: Buffer.from(`${item.id}`), facts: { ...facts, ...bad } }];
        return finishItem(deps, batch, { ...item, leaseToken: "t" }, { images, modelVersion: null }, () => 3);
      }),
    );
  for (const end of await finishAll())
    expect(end).toMatchObject({ status: "rejected", reason: expect.any(StorageUnavailable) });
  isAway = false;
  expect((await finishAll()).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect((await stores.read.batches.byId(batch.id))?.successCount).toBe(2);
});
