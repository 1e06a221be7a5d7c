import { describe, expect, it } from "vitest";
import { FakeJobProvider } from "../../support/fake-job-provider.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, openBeside, otherKey, startTestService } from "../../support/service.ts";
import { readZip } from "../../support/zip.ts";

const post = { method: "POST" };
const remove = { method: "DELETE" };
const codeOf = async (answer: Response) => ((await answer.json()) as { error: { code: string } }).error.code;

/** A service whose provider makes `picture 1`, and waits at `picture 2` and later ones until it is let go, or aborted. */
async function halfDone(options: { obeysAbort: boolean }) {
  const second = gate();
  const letGo = gate();
  const provider = new FakeProvider({ concurrency: 1 });
  provider.answer = async ({ prompt }, signal) => {
    if (prompt !== "picture 1") {
      if (prompt === "picture 2") second.open();
      if (options.obeysAbort) signal.addEventListener("abort", () => letGo.fail(signal.reason));
      await letGo.promise;
    }
    return made(await tinyPng());
  };
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(3) });
  await second.promise;
  await expect.poll(async () => (await service.batch(id)).success_count).toBe(1);
  return { service, provider, id, letGo };
}

describe("cancelling", () => {
  it("[CANCEL-1] keeps and bills what is finished, fails the rest, and gives the rest of the hold back", async () => {
    const { service, provider, id } = await halfDone({ obeysAbort: true });
    const answer = await service.ask(`/${id}/cancel`, post);
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({
      status: "cancelled",
      success_count: 1,
      fail_count: 2,
      pending_count: 0,
      actual_cost: 0.0335,
      settled_at: expect.any(Number),
      expires_at: expect.any(Number),
    });
    await expect.poll(() => provider.running).toBe(0);
    expect(provider.requests).toHaveLength(2);
    const list = (await (await service.ask(`/${id}/items?status=failed`)).json()) as object;
    const error = { code: "CANCELLED", source: "service" };
    expect(list).toMatchObject({ data: [{ error }, { error }] });
    expect((await service.ask(`/${id}/items/i1/content`)).status).toBe(200);
    expect((await service.ask(`/${id}/download`)).status).toBe(200);
    await service.expectBooks();
  });

  it("drops the result of work that comes too late, and its file", async () => {
    const { service, id, letGo } = await halfDone({ obeysAbort: false });
    await service.ask(`/${id}/cancel`, post);
    letGo.open();
    await service.close(5000);
    const { stores, blobs } = await openBeside(service.data);
    expect(await stores.read.batches.byId(id)).toMatchObject({ successCount: 1, failCount: 2 });
    expect(await blobs.list(`outputs/${id}/`)).toHaveLength(1);
    await service.expectBooks();
  });

  it("[CANCEL-3] an ended batch changes nothing", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const ended = await service.until(id);
    const again = await service.ask(`/${id}/cancel`, post);
    expect([again.status, await again.json()]).toEqual([200, ended]);
  });

  it("[CANCEL-3] racing completion ends in one of both, paid for what was made", async () => {
    const service = await startTestService();
    const ids = [];
    for (let i = 0; i < 15; i++) {
      const { id } = await service.submit({ model: MODEL, items: items(2) });
      ids.push(id);
      if (i % 3 > 0) await new Promise((done) => setImmediate(done));
      await service.ask(`/${id}/cancel`, post);
    }
    for (const id of ids) {
      const batch = await service.until(id);
      expect(["completed", "cancelled"]).toContain(batch.status);
      expect(batch.actual_cost).toBe(batch.success_count * 0.0335);
    }
    await service.close(5000);
    await service.expectBooks();
  });

  it("reports that an upstream's job could not be cancelled; the batch is cancelled all the same", async () => {
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: "running" });
    upstream.cancel = () => Promise.reject(new Error("no"));
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => upstream.polls).toBe(1);
    const answer = await service.ask(`/${id}/cancel`, post);
    expect([answer.status, await codeOf(answer)]).toEqual([502, "BATCH_IMAGE_CANCEL_FAILED"]);
    expect(await service.batch(id)).toMatchObject({ status: "cancelled", actual_cost: 0 });
  });
});

describe("deleting", () => {
  it("[DELETE-1] outputs removes the files, keeps the record and what was paid, and can be repeated", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await service.until(id);
    const answer = await service.ask(`/${id}/outputs`, remove);
    const gone = { status: "output_deleted", actual_cost: 0.067, output_deleted_at: expect.any(Number) };
    expect([answer.status, await answer.json()]).toEqual([200, expect.objectContaining(gone)]);
    expect((await service.ask(`/${id}/outputs`, remove)).status).toBe(200);
    for (const path of [`/${id}/download`, `/${id}/items/i1/content`]) {
      const refused = await service.ask(path);
      expect([refused.status, await codeOf(refused)]).toEqual([410, "BATCH_IMAGE_OUTPUT_DELETED"]);
    }
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list("outputs/")).toEqual([]);
  });

  it("the record hides the batch from every path and list, and leaves its files", async () => {
    const service = await startTestService();
    const key = { "idempotency-key": "k" };
    const { id } = await service.submit({ model: MODEL, items: items(1) }, key);
    await service.until(id);
    const answer = await service.ask(`/${id}`, remove);
    expect([answer.status, await answer.text()]).toEqual([204, ""]);
    for (const [path, init] of [
      [`/${id}`, {}],
      [`/${id}`, remove],
      [`/${id}/items`, {}],
      [`/${id}/items/i1/content`, {}],
      [`/${id}/download`, {}],
      [`/${id}/cancel`, post],
      [`/${id}/outputs`, remove],
    ] as const) {
      const hidden = await service.ask(path, init);
      expect([hidden.status, await codeOf(hidden)]).toEqual([404, "BATCH_IMAGE_NOT_FOUND"]);
    }
    expect(await (await service.ask("")).json()).toMatchObject({ data: [] });
    const replay = await service.create({ model: MODEL, items: items(1) }, key);
    expect([replay.status, await codeOf(replay)]).toEqual([409, "BATCH_IMAGE_IDEMPOTENCY_CONFLICT"]);
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list("outputs/")).toHaveLength(1);
  });

  it("[DELETE-3] is refused before the batch has ended", async () => {
    const { service, id, letGo } = await halfDone({ obeysAbort: true });
    const outputs = await service.ask(`/${id}/outputs`, remove);
    expect([outputs.status, await codeOf(outputs)]).toEqual([409, "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY"]);
    const record = await service.ask(`/${id}`, remove);
    expect([record.status, await codeOf(record)]).toEqual([409, "BATCH_IMAGE_RECORD_DELETE_NOT_READY"]);
    const image = await service.ask(`/${id}/items/i1/content`, remove);
    expect(await codeOf(image)).toBe("BATCH_IMAGE_OUTPUT_DELETE_NOT_READY");
    letGo.open();
    await service.until(id);
  });

  it("of one item removes its images, and leaves the others and the payment", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    const { actual_cost } = await service.until(id);
    const thumbnail = `/${id}/items/i2/thumbnail`;
    expect((await service.ask(thumbnail)).status).toBe(200);
    const at = `/${id}/items/i2/content`;
    const { headers } = await otherKey(service);
    expect(await codeOf(await service.ask(at, { ...remove, headers }))).toBe("BATCH_IMAGE_NOT_FOUND");
    expect((await service.ask(at)).status).toBe(200);
    for (let time = 0; time < 2; time++) expect((await service.ask(at, remove)).status).toBe(204);
    for (const path of [at, thumbnail])
      expect(await codeOf(await service.ask(path))).toBe("BATCH_IMAGE_OUTPUT_DELETED");
    expect((await service.ask(`/${id}/items/i1/content`)).status).toBe(200);
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list(`outputs/${id}/`)).toHaveLength(2);
    expect(await blobs.list("thumbnails/")).toEqual([]);
    const zip = await readZip(Buffer.from(await (await service.ask(`/${id}/download`)).arrayBuffer()));
    expect([...zip.keys()].filter((name) => name.endsWith(".png"))).toEqual([
      "images/i1.png",
      "images/i3.png",
    ]);
    const { data } = await (await service.ask(`/${id}/items?include=images`)).json();
    expect(data[1]).toMatchObject({ custom_id: "i2", status: "success", image_count: 1, images: [] });
    expect(await service.batch(id)).toMatchObject({ status: "completed", success_count: 3, actual_cost });
    await service.expectBooks();
  });
});
