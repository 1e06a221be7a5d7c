import { describe, expect, it } from "vitest";
import type { errorBody } from "../../../src/contract/errors.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";

/** Makes the second picture in a retry only. */
function unluckyProvider(): FakeProvider {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt, origin }) => {
    if (prompt === "picture 2" && origin === "batch") throw new ProviderError("PROVIDER_ITEM_FAILED", "no");
    return made(await tinyPng());
  };
  return provider;
}

describe("a retry over HTTP", () => {
  it("makes one batch of the failed items, however often it is sent with one key", async () => {
    const service = await startTestService({ providers: [unluckyProvider()] });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const retry = () =>
      service.ask(`/${id}/retry`, { method: "POST", headers: { "idempotency-key": "again" } });
    const first = await retry();
    const made = await first.json();
    expect([first.status, made]).toMatchObject([200, { parent_batch_id: id, item_count: 1 }]);
    const second = await retry();
    expect(second.headers.get("idempotency-replayed")).toBe("true");
    expect((await second.json()).id).toBe(made.id);
    expect(await service.until(made.id)).toMatchObject({ success_count: 1, fail_count: 0 });
    const other = await service.ask(`/${id}/retry`, { method: "POST" });
    expect((await other.json()).id).not.toBe(made.id);
  });

  it("is listed in its first batch, once, for those who ask; and by itself when that one is deleted", async () => {
    const service = await startTestService({ providers: [unluckyProvider()] });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const retry = await (await service.ask(`/${id}/retry`, { method: "POST" })).json();
    await service.until(retry.id);
    const again = await service.submit({ model: MODEL, items: items(1), parent_batch_id: retry.id });
    await service.until(again.id);
    const listed = async (query: string) => {
      const { data } = await (await service.ask(query)).json();
      return data.map((batch: { id: string; retries?: { id: string }[] }) => [
        batch.id,
        batch.retries?.map((each) => each.id),
      ]);
    };
    expect(await listed("?include=retries")).toEqual([[id, [retry.id, again.id]]]);
    expect(await listed("?limit=1")).toEqual([[again.id, undefined]]);
    const one = await (await service.ask(`/${id}?include=retries`)).json();
    expect(one.retries).toMatchObject([{ id: retry.id, success_count: 1 }, { id: again.id }]);
    const { status } = await service.ask(`/${id}?include=all`);
    expect(status).toBe(400);

    const other = { model: MODEL, items: items(1), parent_batch_id: id, task_name: "other" };
    const last = await service.submit(other);
    await service.until(last.id);
    expect((await service.ask(`/${last.id}/outputs`, { method: "DELETE" })).status).toBe(200);
    expect(await listed("?include=retries&status=output_deleted")).toEqual([[last.id, []]]);
    expect(await listed("?include=retries&task_name=other")).toEqual([[last.id, []]]);
    expect(await listed("?include=retries&status=completed")).toEqual([[id, [retry.id, again.id, last.id]]]);
    const { stores } = await openBeside(service.data);
    const { apiKeyId } = (await stores.read.batches.byId(id)) ?? { apiKeyId: "" };
    const newest = await stores.read.batches.retriesOf(apiKeyId, [id], 2);
    expect(newest.map((each) => each.id)).toEqual([again.id, last.id]);

    expect((await service.ask(`/${id}`, { method: "DELETE" })).status).toBe(204);
    expect(await listed("?include=retries")).toEqual([
      [last.id, []],
      [again.id, []],
      [retry.id, []],
    ]);
  });

  it("is answered again after its reference images were deleted, and makes no other batch of them", async () => {
    const service = await startTestService({ providers: [unluckyProvider()] });
    const reference_images = [{ mime_type: "image/png", data: (await tinyPng()).toString("base64") }];
    const referring = items(2).map((item) => ({ ...item, reference_images }));
    const { id } = await service.submit({ model: MODEL, items: referring });
    await service.until(id);
    const retry = async (key: string) => {
      const headers = { "idempotency-key": key };
      return (await service.ask(`/${id}/retry`, { method: "POST", headers })).json();
    };
    const made = await retry("again");
    const { blobs } = await openBeside(service.data);
    await blobs.deleteAll(`inputs/${id}/`);
    expect((await retry("again")).id).toBe(made.id);
    expect(await retry("new")).toMatchObject({ error: { code: "BATCH_IMAGE_INVALID_REFERENCE_IMAGE" } });
  });

  it("shows in the item list which later batch makes a failed item again, until the item fails there, too", async () => {
    let isBroken = true;
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt !== "picture 1" && isBroken)
        throw new ProviderError("PROVIDER_ITEM_FAILED", "no", { retryable: false });
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const retry = async (of: string, customId: string) => {
      const headers = { "content-type": "application/json" };
      const init = { method: "POST", headers, body: JSON.stringify({ custom_ids: [customId] }) };
      const batch = await (await service.ask(`/${of}/retry`, init)).json();
      await service.until(batch.id);
      return batch.id as string;
    };
    const retriedIn = async (of: string) => {
      const { data } = await (await service.ask(`/${of}/items?include=retries`)).json();
      return data.map(({ retried_in }: { retried_in: string | null }) => retried_in);
    };
    const failed = await retry(id, "i2");
    expect(await retriedIn(id)).toEqual([null, null, null]);
    isBroken = false;
    const [second, third] = [await retry(failed, "i2"), await retry(id, "i3")];
    expect([await retriedIn(id), await retriedIn(failed)]).toEqual([[null, second, third], [second]]);
    expect([await retriedIn(second), await retriedIn(third)]).toEqual([[null], [null]]);
    expect((await service.ask(`/${second}`, { method: "DELETE" })).status).toBe(204);
    expect(await retriedIn(id)).toEqual([null, null, third]);
  });

  it("makes the named items alone, and refuses one that is not there or did not fail", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt, origin }) => {
      if (prompt !== "picture 1" && origin === "batch")
        throw new ProviderError(prompt === "picture 4" ? "SAFETY_BLOCKED" : "PROVIDER_ITEM_FAILED", "no");
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await service.until(id);
    const retry = async (body: unknown, key = "again") => {
      const headers = { "content-type": "application/json", "idempotency-key": key };
      const init = { method: "POST", headers, body: JSON.stringify(body) };
      return (await service.ask(`/${id}/retry`, init)).json();
    };
    const some = await retry({ custom_ids: ["i3"] });
    expect(some).toMatchObject({ parent_batch_id: id, item_count: 1 });
    expect((await service.items(some.id)).map(({ custom_id }) => custom_id)).toEqual(["i3"]);
    expect((await retry({ custom_ids: ["i3"] })).id).toBe(some.id);
    expect((await retry({ custom_ids: ["i2"] })).error.code).toBe("BATCH_IMAGE_IDEMPOTENCY_CONFLICT");
    expect(await retry({}, "all")).toMatchObject({ item_count: 2 });
    for (const custom_ids of [["i1"], ["i3", "i4"], ["i3", "\u202ei9"], [], "i3", [3]]) {
      const { error } = await retry({ custom_ids }, "other");
      expect([error.code, error.param]).toEqual([
        "BATCH_IMAGE_INVALID_ITEMS",
        expect.stringMatching(/^custom_ids/),
      ]);
    }
  });

  it("is refused without failed items, and where no batches are made", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(id);
    const refused = await service.ask(`/${id}/retry`, { method: "POST" });
    const { error } = (await refused.json()) as ReturnType<typeof errorBody>;
    expect([refused.status, error.code]).toEqual([400, "BATCH_IMAGE_INVALID_ITEMS"]);
    const off = await startTestService({ config: { features: { batchImages: false } }, workers: false });
    const hidden = await off.ask(`/${id}/retry`, { method: "POST" });
    expect([hidden.status, (await hidden.json()).error.code]).toEqual([404, "BATCH_IMAGE_DISABLED"]);
  });
});
