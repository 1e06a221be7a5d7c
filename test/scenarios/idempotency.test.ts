import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { inputsPrefix } from "../../src/domain/batches/write-items.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";

const key = (name: string) => ({ "idempotency-key": name });
const isReplay = (answer: Response) => answer.headers.get("idempotency-replayed") === "true";
const idOf = async (answer: Response) => ((await answer.json()) as BatchObject).id;

async function reference(shade = 0) {
  return { mime_type: "image/png", data: (await tinyPng(shade)).toString("base64") };
}

/** As many answers as there are bodies, all asked at once. */
const all = (service: TestService, bodies: readonly object[], headers: Record<string, string>) =>
  Promise.all(bodies.map((body) => service.create(body, headers)));

async function books(service: TestService) {
  const { stores, blobs } = await openBeside(service.data);
  await service.expectBooks();
  const kinds = (await stores.read.ledger.list({})).map((entry) => entry.kind);
  return {
    batches: await stores.read.batches.all(),
    holds: kinds.filter((kind) => kind === "hold").length,
    stores,
    blobs,
  };
}

/** A service whose work waits until the test is over: batches stay as they were made. */
async function idleService(config: object = {}) {
  const provider = new FakeProvider();
  const mayGo = gate();
  provider.answer = async (_, signal) => {
    signal.addEventListener("abort", () => mayGo.fail(signal.reason));
    await mayGo.promise;
    return made(await tinyPng());
  };
  return { service: await startTestService({ providers: [provider], config }), mayGo };
}

describe("many requests at once", () => {
  it("[IDEM-1] with one key make one batch, with one hold and the right files of its reference images", async () => {
    const { service, mayGo } = await idleService();
    const item = { prompt: "a", reference_images: [await reference(1), await reference(2)] };
    const answers = await all(service, Array(30).fill({ model: MODEL, items: [item] }), key("k"));
    const [id = "", ...others] = new Set(await Promise.all(answers.map(idOf)));
    expect(others).toEqual([]);
    const { blobs, batches, holds } = await books(service);
    expect([batches.length, holds]).toEqual([1, 1]);
    expect(answers.filter((answer) => !isReplay(answer))).toHaveLength(1);
    const files = await blobs.list("inputs/");
    expect(files.filter((file) => file.key.startsWith(inputsPrefix(id)))).toHaveLength(2);
    expect(files).toHaveLength(2);
    mayGo.open();
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1 });
  });

  it("[IDEM-2] with one key and different bodies: one is taken, the others conflict", async () => {
    const { service } = await idleService();
    const bodies = Array.from({ length: 20 }, (_, i) => ({
      model: MODEL,
      items: [{ prompt: `picture ${i}` }],
    }));
    const answers = await all(service, bodies, key("k"));
    const statuses = answers.map((answer) => answer.status).sort();
    expect(statuses).toEqual([200, ...Array(19).fill(409)]);
    for (const answer of answers) await answer.text();
    const { batches, holds } = await books(service);
    expect([batches.length, holds]).toEqual([1, 1]);
  });
});

describe("what belongs to a key", () => {
  it("[IDEM-2] the same request is the same however it is written, and at whatever time", async () => {
    const { service } = await idleService();
    const image = await reference();
    const first = { model: MODEL, items: [{ prompt: "a", reference_images: [image] }, { prompt: "b" }] };
    const { id, task_name } = await service.submit(first, key("k"));
    // The generated name has the second of the creation in it: a replay in another second is still the same.
    expect(task_name).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    const { stores } = await openBeside(service.data);
    await stores.write((tx) => tx.batches.update(id, { taskName: "another second" }));
    const defaults = {
      response_mime_type: "image/png",
      image_size: "1K",
      metadata: {},
      parent_batch_id: null,
    };
    const written = {
      items: [
        {
          reference_images: [{ ...image, id: null, unknown: 1 }],
          output_count: 1,
          custom_id: "item_000001",
          prompt: " a",
        },
        { prompt: "b\n", reference_images: [], output_count: null },
      ],
      aspect_ratio: "16:9",
      whatever: { deep: [1] },
      task_name: null,
      ...defaults,
      model: MODEL,
    };
    const again = await service.create(written, key("k"));
    expect([again.status, isReplay(again), await idOf(again)]).toEqual([200, true, id]);
  });

  it.each([
    ["another name", { task_name: "other" }],
    ["another type", { response_mime_type: "image/webp" }],
    ["metadata", { metadata: { a: "b" } }],
    ["another model", { model: "vendorx-3-pro-image" }],
    ["another number of outputs", { items: [{ prompt: "a", output_count: 2 }] }],
    ["another id", { items: [{ prompt: "a", custom_id: "b" }] }],
    ["another order", { items: [{ prompt: "b" }, { prompt: "a" }] }],
  ])("[IDEM-2] %s makes it another request", async (_, change) => {
    const { service } = await idleService();
    const body = { model: MODEL, items: [{ prompt: "a" }] };
    await service.submit(body, key("k"));
    const answer = await service.create({ ...body, ...change }, key("k"));
    expect([answer.status, await answer.json()]).toMatchObject([
      409,
      { error: { code: "BATCH_IMAGE_IDEMPOTENCY_CONFLICT" } },
    ]);
  });
});

describe("a replay", () => {
  const body = { model: MODEL, items: items(2) };

  it("shows the batch as it is now: cancelled, or without its outputs; a deleted record conflicts", async () => {
    const { service } = await idleService();
    const { id } = await service.submit(body, key("k"));
    const replay = async () => {
      const answer = await service.create(body, key("k"));
      const { status, ...rest } = (await answer.json()) as BatchObject;
      return [answer.status, isReplay(answer), rest.id, status];
    };
    await service.ask(`/${id}/cancel`, { method: "POST" });
    expect(await replay()).toEqual([200, true, id, "cancelled"]);
    await service.ask(`/${id}/outputs`, { method: "DELETE" });
    expect(await replay()).toEqual([200, true, id, "output_deleted"]);
    await service.ask(`/${id}`, { method: "DELETE" });
    expect((await service.create(body, key("k"))).status).toBe(409);
    expect((await books(service)).holds).toBe(1);
  });

  it("is answered although the balance is spent since", async () => {
    const models = [{ id: MODEL, prices: { "1K": 500 } }];
    const service = await startTestService({ config: { models } });
    const one = { model: MODEL, items: items(1) };
    const ids = [];
    for (const name of ["a", "b", "c"]) ids.push((await service.submit(one, key(name))).id);
    expect((await service.create(one, key("d"))).status).toBe(402);
    const answer = await service.create(one, key("a"));
    expect([answer.status, isReplay(answer), await idOf(answer)]).toEqual([200, true, ids[0]]);
    for (const id of ids) await service.until(id);
    // A refusal leaves the key free.
    expect((await service.create({ ...one, items: items(2) }, key("d"))).status).toBe(402);
  });
});
