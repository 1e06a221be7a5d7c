import { expect, it, onTestFinished } from "vitest";
import {
  cancelBatch,
  createBatch,
  deleteOutputs,
  deleteRecord,
  listBatches,
} from "../../src/client/batches.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { FAKE_KEY, type FakeOptions, startFakeService } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";

async function bench(options: FakeOptions, count = 1) {
  const fake = await startFakeService(options);
  onTestFinished(() => fake.close());
  const http = createServiceHttp({
    baseUrl: fake.url,
    apiKey: FAKE_KEY,
    clock: new InstantClock(),
    random: () => 0,
  });
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const body = JSON.stringify({ model: "m", items: [{ custom_id: `i${i}`, prompt: "p" }] });
    ids.push((await createBatch(http, body, `k${i}`)).batch.id);
  }
  return { fake, http, ids, id: ids[0] ?? "" };
}

it.each([{ foreign: false }, { foreign: true }])(
  "cancel and delete need no answer but success (%o)",
  async ({ foreign }) => {
    const { fake, http, id } = await bench({ foreign, statuses: ["running"] });
    expect((await cancelBatch(http, id)).status).toBe("cancelled");
    expect((await deleteOutputs(http, id)).status).toBe("output_deleted");
    await deleteRecord(http, id);
    expect(fake.batches).toHaveLength(0);
  },
);

it("a deletion whose answer was lost is done; one of a batch that never was is not found", async () => {
  const { fake, http, id } = await bench({ statuses: ["running"] });
  await cancelBatch(http, id);
  fake.fault(/^DELETE/, { reset: "after" });
  await deleteRecord(http, id);
  expect(fake.count(/^DELETE/)).toBe(2);
  await expect(deleteRecord(http, id)).rejects.toMatchObject({ code: "BATCH_IMAGE_NOT_FOUND" });
});

it.each([{ foreign: false }, { foreign: true }])(
  "batches are listed newest first over as many pages as it takes (%o)",
  async ({ foreign }) => {
    const { fake, http, ids } = await bench({ foreign }, 105);
    const all = await listBatches(http, {}, null);
    expect(all.batches.map(({ id }) => id)).toEqual(ids.toReversed());
    expect(all.hasMore).toBe(false);
    const some = await listBatches(http, {}, 102);
    expect({ count: some.batches.length, hasMore: some.hasMore }).toEqual({ count: 102, hasMore: true });
    expect(fake.count(/^GET .*limit=2&cursor=100$/)).toBe(1);
  },
);

it("a list that has no end, and what is no list, are errors", async () => {
  const { fake, http } = await bench({});
  const data = [{ id: "imgbatch_1", status: "queued" }];
  const page = { status: 200, body: { object: "list", data, has_more: true, next_cursor: "again" } };
  const empty = { status: 200, body: { object: "list", data: [], has_more: true } };
  const other = { ...page, body: { ...page.body, data: [{ id: "imgbatch_2", status: "queued" }] } };
  for (const pages of [
    [page, page],
    [page, empty],
    [page, other],
  ]) {
    const asked = fake.count(/^GET/);
    fake.fault(/^GET/, ...pages);
    await expect(listBatches(http, {}, null)).rejects.toMatchObject({
      code: "BAD_RESPONSE",
      message: expect.stringContaining("whose pages end"),
    });
    expect(fake.count(/^GET/) - asked).toBe(2);
  }
  fake.fault(/^GET/, page);
  expect(await listBatches(http, {}, 1)).toMatchObject({ batches: [{ id: "imgbatch_1" }], hasMore: true });
  fake.fault(/^GET/, { status: 200, body: { data: [{ no: "batch" }] } });
  await expect(listBatches(http, {}, null)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
});
