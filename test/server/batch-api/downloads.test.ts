import { describe, expect, it } from "vitest";
import type { errorBody } from "../../../src/contract/errors.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";
import { readZip } from "../../support/zip.ts";

const bytesOf = async (answer: Response) => Buffer.from(await answer.arrayBuffer());
const codeOf = async (answer: Response) => ((await answer.json()) as ReturnType<typeof errorBody>).error.code;

/** A completed batch: `i1` failed, the others have images. */
async function finishedBatch(count = 3): Promise<{ service: TestService; id: string }> {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt }) => {
    if (prompt === "picture 1") throw new ProviderError("SAFETY_BLOCKED", "refused");
    return made(await tinyPng(Number(prompt.split(" ")[1])));
  };
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(count) });
  await service.until(id);
  return { service, id };
}

describe("one image", () => {
  it("[CONTENT-1] comes with its type, size, name and hash", async () => {
    const { service, id } = await finishedBatch();
    const answer = await service.ask(`/${id}/items/i2/content`);
    const bytes = await bytesOf(answer);
    expect(bytes).toEqual(await tinyPng(2));
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/png",
      "content-length": String(bytes.length),
      "content-disposition": "attachment; filename=\"i2.png\"; filename*=UTF-8''i2.png",
      etag: `"${sha256Hex(bytes)}"`,
      "cache-control": "private, max-age=300",
      "x-content-type-options": "nosniff",
      "accept-ranges": "bytes",
    });
  });

  it("can be asked for its headers, for a range, and whether it has changed", async () => {
    const { service, id } = await finishedBatch();
    const path = `/${id}/items/i2/content`;
    const whole = await tinyPng(2);
    const head = await service.ask(path, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, String(whole.length)]);
    const part = await service.ask(path, { headers: { range: "Bytes=4-9" } });
    expect([part.status, part.headers.get("content-range")]).toEqual([206, `bytes 4-9/${whole.length}`]);
    expect(await bytesOf(part)).toEqual(whole.subarray(4, 10));
    const tail = await service.ask(path, { headers: { range: "bytes=-5" } });
    expect(await bytesOf(tail)).toEqual(whole.subarray(-5));
    const long = await service.ask(path, { headers: { range: "bytes=-99999999" } });
    expect(long.headers.get("content-range")).toBe(`bytes 0-${whole.length - 1}/${whole.length}`);
    for (const range of ["bytes=9-4", "bytes=0-1,3-4", "lines=0-1"]) {
      expect((await service.ask(path, { headers: { range } })).status).toBe(200);
    }
    const beyond = await service.ask(path, { headers: { range: `bytes=${whole.length}-` } });
    expect([beyond.status, beyond.headers.get("content-range")]).toEqual([416, `bytes */${whole.length}`]);
    const same = await service.ask(path, { headers: { "if-none-match": head.headers.get("etag") ?? "" } });
    expect(same.status).toBe(304);
  });

  it("answers what is wrong in a fixed order", async () => {
    const { service, id } = await finishedBatch();
    expect(await codeOf(await service.ask(`/unknown/items/i2/content`))).toBe("BATCH_IMAGE_NOT_FOUND");
    expect(await codeOf(await service.ask(`/${id}/items/nope/content`))).toBe("BATCH_IMAGE_ITEM_NOT_FOUND");
    expect(await codeOf(await service.ask(`/${id}/items/i1/content?image_index=9`))).toBe(
      "BATCH_IMAGE_ITEM_FAILED",
    );
    for (const index of ["1", "-1", "x"]) {
      const answer = await service.ask(`/${id}/items/i2/content?image_index=${index}`);
      expect(await codeOf(answer)).toBe("BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE");
    }
  });

  it("[EARLY-4] is not there before the batch has ended, although the item has, unless a caller asks for it early", async () => {
    const last = gate();
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }) => {
      if (prompt === "picture 2") await last.promise;
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(1);
    for (const path of [`/${id}/items/i1/content`, `/${id}/download`]) {
      const answer = await service.ask(path);
      expect([answer.status, await codeOf(answer)]).toEqual([409, "BATCH_IMAGE_NOT_READY"]);
    }
    const early = await service.ask(`/${id}/items/i1/content?early=true`);
    expect([early.status, await bytesOf(early)]).toEqual([200, await tinyPng()]);
    const open = await service.ask(`/${id}/items/i2/content?early=true`);
    expect([open.status, await codeOf(open)]).toEqual([409, "BATCH_IMAGE_NOT_READY"]);
    last.open();
    await service.until(id);
  });

  it("whose stored bytes have changed is never sent", async () => {
    const { service, id } = await finishedBatch();
    const { stores, blobs } = await openBeside(service.data);
    const output = (await stores.read.outputs.ofBatch(id))[0];
    const bytes = await tinyPng(2);
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    await blobs.put(output?.blobKey ?? "", bytes);
    const answer = await service.ask(`/${id}/items/i2/content`);
    expect([answer.status, await codeOf(answer)]).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
    const zip = await service.ask(`/${id}/download`);
    await expect(zip.arrayBuffer()).rejects.toThrow();
  });
});

describe("the ZIP", () => {
  it("[ZIP-1] has the images, a manifest with their hashes, and the errors", async () => {
    const { service, id } = await finishedBatch();
    const answer = await service.ask(`/${id}/download`);
    const bytes = await bytesOf(answer);
    expect(answer.headers.get("content-type")).toBe("application/zip");
    expect(answer.headers.get("content-length")).toBe(String(bytes.length));
    const entries = await readZip(bytes);
    expect([...entries.keys()]).toEqual(["images/i2.png", "images/i3.png", "manifest.json", "errors.json"]);
    const image = entries.get("images/i2.png") ?? Buffer.alloc(0);
    expect(image).toEqual(await tinyPng(2));
    const manifest = JSON.parse(String(entries.get("manifest.json")));
    expect(manifest).toMatchObject({
      batch_id: id,
      model: MODEL,
      item_count: 3,
      success_count: 2,
      fail_count: 1,
    });
    expect(manifest.files[0]).toEqual({
      custom_id: "i2",
      filename: "images/i2.png",
      mime_type: "image/png",
      image_index: 0,
      size: image.length,
      sha256: sha256Hex(image),
    });
    expect(JSON.parse(String(entries.get("errors.json")))).toEqual([
      { custom_id: "i1", code: "SAFETY_BLOCKED", message: "refused", source: "provider" },
    ]);
  });

  it("[ZIP-2] always has the same bytes, and a broken download of it can be resumed", async () => {
    const { service, id } = await finishedBatch(8);
    const first = await service.ask(`/${id}/download`);
    const etag = first.headers.get("etag") ?? "";
    const whole = await bytesOf(first);
    const half = Math.floor(whole.length / 2);
    const rest = await service.ask(`/${id}/download`, {
      headers: { range: `bytes=${half}-`, "if-range": etag },
    });
    expect(rest.status).toBe(206);
    expect(await bytesOf(rest)).toEqual(whole.subarray(half));
    const changed = await service.ask(`/${id}/download`, {
      headers: { range: `bytes=${half}-`, "if-range": '"old"' },
    });
    expect(changed.status).toBe(200);
    expect(await bytesOf(changed)).toEqual(whole);
  });

  it("sent to its end marks the batch as downloaded; its headers alone do not", async () => {
    const { service, id } = await finishedBatch();
    await service.ask(`/${id}/download`, { method: "HEAD" });
    await bytesOf(await service.ask(`/${id}/download?status=failed`));
    await bytesOf(await service.ask(`/${id}/download`, { headers: { range: "bytes=0-10" } }));
    expect((await service.batch(id)).downloaded_at).toBeNull();
    await bytesOf(await service.ask(`/${id}/download`));
    await expect.poll(async () => (await service.batch(id)).downloaded_at).toEqual(expect.any(Number));
  });

  it("is refused rather than cut when it would hold more items than asked for", async () => {
    const { service, id } = await finishedBatch();
    expect(await codeOf(await service.ask(`/${id}/download?max_items=1`))).toBe(
      "BATCH_IMAGE_ZIP_TOO_MANY_ITEMS",
    );
    expect(await codeOf(await service.ask(`/${id}/download?max_items=0`))).toBe("BATCH_IMAGE_INVALID_QUERY");
    expect(await codeOf(await service.ask(`/${id}/download?status=some`))).toBe("BATCH_IMAGE_INVALID_QUERY");
  });
});

describe("lists", () => {
  it("[ITEM-1] items come in request order, page by page, by cursor or by offset", async () => {
    const { service, id } = await finishedBatch(5);
    const page = async (query: string) =>
      (await (await service.ask(`/${id}/items?${query}`)).json()) as {
        data: { custom_id: string }[];
        has_more: boolean;
        next_cursor: string | null;
      };
    const first = await page("limit=2");
    expect([first.data.map((i) => i.custom_id), first.has_more]).toEqual([["i1", "i2"], true]);
    const second = await page(`limit=2&cursor=${first.next_cursor}`);
    expect(second.data.map((i) => i.custom_id)).toEqual(["i3", "i4"]);
    const last = await page("limit=2&cursor=4");
    expect([last.data.map((i) => i.custom_id), last.has_more, last.next_cursor]).toEqual([
      ["i5"],
      false,
      null,
    ]);
    expect((await page("status=failed")).data.map((i) => i.custom_id)).toEqual(["i1"]);
  });

  it.each([
    "status=foo",
    "limit=0",
    "limit=501",
    "limit=x",
    "cursor=%21",
    "cursor=aTEuMg",
    "limit=1&limit=2",
  ])("the query %s is refused", async (query) => {
    const { service, id } = await finishedBatch(1);
    const answer = await service.ask(`/${id}/items?${query}`);
    expect([answer.status, await codeOf(answer)]).toEqual([400, "BATCH_IMAGE_INVALID_QUERY"]);
  });

  it("[MODEL-1] batch models are those that the group may use, that have a price and that a provider makes", async () => {
    const groups = [{ name: "default", models: [MODEL, "dear"] }];
    const models = [
      { id: MODEL, prices: { "1K": 0.067 } },
      { id: "dear" },
      { id: "other", prices: { "1K": 1 } },
    ];
    const service = await startTestService({ config: { groups, models } });
    const list = await (await service.ask("/models")).json();
    const pricing = { currency: "usd", batch_image: 0.0335, batch_hold: 0.0402, play_money: true };
    const provider = "procedural";
    const entry = { id: MODEL, object: "image.batch.model", provider, max_reference_images: 3, pricing };
    const [{ options, prices, ...known }, ...others] = list.data;
    expect([known, ...others]).toEqual([entry]);
    expect({ ...list, data: [], limits: undefined }).toEqual({
      object: "list",
      data: [],
      has_more: false,
      next_cursor: null,
    });
    const asked = { default_quality: "medium", background: ["transparent", "opaque", "auto"], seed: true };
    expect(options).toMatchObject({ ...asked, quality: ["low", "medium", "high"], negative_prompt: true });
    const { batch_image, batch_hold } = pricing;
    expect(prices).toContainEqual({ image_size: "1K", quality: "high", batch_image, batch_hold });
  });
});
