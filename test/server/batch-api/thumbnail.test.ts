import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, made } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, openBeside, otherKey, startTestService } from "../../support/service.ts";

const wide = (background = "#246") =>
  sharp({ create: { width: 1600, height: 800, channels: 3, background } })
    .png()
    .toBuffer();

/** A batch whose first item has a wide image, and whose second has failed. */
async function pictured() {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt }) => {
    if (prompt === "picture 2") throw new ProviderError("SAFETY_BLOCKED", "no");
    return made(await wide());
  };
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await service.until(id);
  const ask = (query = "", init: RequestInit = {}, item = "i1") =>
    service.ask(`/${id}/items/${item}/thumbnail${query}`, init);
  return { service, id, ask };
}

const codeOf = async (answer: Response) => [answer.status, (await answer.json()).error.code];

describe("a thumbnail", () => {
  it.each([
    ["", 256, 128],
    ["?width=256", 256, 128],
    ["?width=1024", 1024, 512],
  ])("of an image fits into the square of the query %j", async (query, width, height) => {
    const { ask } = await pictured();
    const answer = await ask(query);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/webp",
      "cache-control": "private, max-age=43200",
      vary: "Authorization",
      "x-content-type-options": "nosniff",
    });
    const facts = await sharp(Buffer.from(await answer.arrayBuffer())).metadata();
    expect(facts).toMatchObject({ format: "webp", width, height });
    const etag = answer.headers.get("etag") ?? "";
    expect((await ask(query, { headers: { "if-none-match": etag } })).status).toBe(304);
  });

  it("is made once, and does not count as a download", async () => {
    const { service, id, ask } = await pictured();
    const first = Buffer.from(await (await ask()).arrayBuffer());
    const { blobs } = await openBeside(service.data);
    const [kept] = await blobs.list(`thumbnails/${id}/`);
    await blobs.put(kept?.key ?? "", Buffer.from("kept"));
    expect(await (await ask()).text()).toBe("kept");
    expect(first.length).toBeGreaterThan(20);
    expect((await service.batch(id)).downloaded_at).toBeNull();
  });

  it("is there before the batch has ended, and not before the item has", async () => {
    const last = gate();
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }) => {
      if (prompt === "picture 2") await last.promise;
      return made(await wide());
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(1);
    expect((await service.ask(`/${id}/items/i1/thumbnail`)).status).toBe(200);
    expect(await codeOf(await service.ask(`/${id}/items/i2/thumbnail`))).toEqual([
      409,
      "BATCH_IMAGE_NOT_READY",
    ]);
    last.open();
    await service.until(id);
  });

  it("is in the list of its batch once it was asked for alone, and the browser keeps a whole list", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt === "picture 3") throw new ProviderError("SAFETY_BLOCKED", "no");
      return made(await wide(`#24${prompt.at(-1)}`));
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await service.until(id);
    const list = async (query = "") => {
      const answer = await service.ask(`/${id}/thumbnails${query}`);
      const { data, next_cursor } = await answer.json();
      return { data, next_cursor, kept: answer.headers.get("cache-control") };
    };
    const small = await (await service.ask(`/${id}/items/i2/thumbnail`)).arrayBuffer();
    const second = { custom_id: "i2", data: Buffer.from(small).toString("base64") };
    const [first, third, fourth] = ["i1", "i3", "i4"].map((custom_id) => ({ custom_id, data: null }));
    expect(await list()).toEqual({
      data: [first, second, third, fourth],
      next_cursor: null,
      kept: "no-store",
    });
    const whole = await list("?cursor=1&limit=2");
    expect(whole).toMatchObject({ data: [second, third], kept: "private, max-age=43200" });
    expect((await list(`?cursor=${whole.next_cursor}`)).data).toEqual([fourth]);
    expect(await codeOf(await service.ask(`/${id}/thumbnails?limit=51`))).toEqual([
      400,
      "BATCH_IMAGE_INVALID_QUERY",
    ]);
    const { headers } = await otherKey(service);
    expect(await codeOf(await service.ask(`/${id}/thumbnails`, { headers }))).toEqual([
      404,
      "BATCH_IMAGE_NOT_FOUND",
    ]);
    await service.ask(`/${id}/outputs`, { method: "DELETE" });
    expect(await codeOf(await service.ask(`/${id}/thumbnails`))).toEqual([410, "BATCH_IMAGE_OUTPUT_DELETED"]);
  });

  it("goes with the images of its batch, and is 410 then", async () => {
    const { service, id, ask } = await pictured();
    await (await ask()).arrayBuffer();
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list(`thumbnails/${id}/`)).toHaveLength(1);
    await service.ask(`/${id}/outputs`, { method: "DELETE" });
    expect(await codeOf(await ask())).toEqual([410, "BATCH_IMAGE_OUTPUT_DELETED"]);
    expect(await blobs.list(`thumbnails/${id}/`)).toEqual([]);
  });

  it("has an error for everything that prevents it", async () => {
    const { service, ask } = await pictured();
    expect(await codeOf(await ask("", {}, "i2"))).toEqual([409, "BATCH_IMAGE_ITEM_FAILED"]);
    expect(await codeOf(await ask("", {}, "i9"))).toEqual([404, "BATCH_IMAGE_ITEM_NOT_FOUND"]);
    expect(await codeOf(await ask("?width=300"))).toEqual([400, "BATCH_IMAGE_INVALID_QUERY"]);
    expect(await codeOf(await ask("?image_index=1"))).toEqual([
      400,
      "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE",
    ]);
    const { headers } = await otherKey(service);
    expect(await codeOf(await ask("", { headers }))).toEqual([404, "BATCH_IMAGE_NOT_FOUND"]);
  });

  it("is not made of an image that was damaged", async () => {
    const { service, id, ask } = await pictured();
    const { stores, blobs } = await openBeside(service.data);
    const [output] = await stores.read.outputs.ofBatch(id);
    await blobs.put(output?.blobKey ?? "", Buffer.alloc(output?.sizeBytes ?? 0));
    expect(await codeOf(await ask())).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
  });
});
