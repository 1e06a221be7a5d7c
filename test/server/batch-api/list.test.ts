import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../../src/contract/batch-api.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { batchApi } from "../../../src/server/batch-api/batches.ts";
import { OPERATIONS } from "../../../src/server/surfaces.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import {
  items,
  MODEL,
  openBeside,
  otherKey,
  startTestService,
  type TestService,
} from "../../support/service.ts";

interface Page {
  data: BatchObject[];
  has_more: boolean;
  next_cursor: string | null;
}

const START = Date.UTC(2030, 0, 31, 23, 59, 58, 500);

/** Five finished batches `b1` to `b5`, a second apart; the last two in the same moment. */
async function fiveBatches(): Promise<{ service: TestService; page: (query: string) => Promise<Page> }> {
  const clock = new FakeClock(START);
  const service = await startTestService({ clock });
  for (const name of ["b1", "B2 50%_off", "b3 Ä", "b4", "b5"]) {
    const { id } = await service.submit({ model: MODEL, task_name: name, items: items(1) });
    await service.until(id);
    if (name !== "b4") clock.advance(1000);
  }
  const page = async (query: string) => (await (await service.ask(`?${query}`)).json()) as Page;
  return { service, page };
}

const names = (page: Page) => page.data.map((batch) => batch.task_name.slice(0, 2));

describe("the list of batches", () => {
  it("[LIST-1] is newest first, by page, with a cursor or an offset", async () => {
    const { page } = await fiveBatches();
    const all = await page("");
    expect(all).toMatchObject({ object: "list", has_more: false, next_cursor: null });
    expect(names(all)).toEqual(["b5", "b4", "b3", "B2", "b1"]);
    const first = await page("limit=2");
    expect([names(first), first.has_more]).toEqual([["b5", "b4"], true]);
    const second = await page(`limit=2&cursor=${first.next_cursor}`);
    expect(names(second)).toEqual(["b3", "B2"]);
    expect(names(await page(`limit=2&cursor=${second.next_cursor}`))).toEqual(["b1"]);
    expect(names(await page("limit=2&cursor=3"))).toEqual(["B2", "b1"]);
    expect(await page("cursor=99")).toMatchObject({ data: [], has_more: false, next_cursor: null });
    expect(await page("cursor=10000")).toMatchObject({ data: [], has_more: false, next_cursor: null });
    const advice = "must be an offset of at most 10000; further on, send `next_cursor` of the page before";
    expect(await page("cursor=99999999999")).toMatchObject({
      error: { message: expect.stringContaining(advice) },
    });
  });

  it("can be narrowed by status, name, download and time", async () => {
    const { service, page } = await fiveBatches();
    expect(names(await page("status=completed&limit=1"))).toEqual(["b5"]);
    expect(names(await page("status=running"))).toEqual([]);
    expect((await page("status=all")).data).toHaveLength(5);
    expect(names(await page("task_name=b2"))).toEqual(["B2"]);
    expect(names(await page(`task_name=${encodeURIComponent("%_")}`))).toEqual(["B2"]);
    expect(names(await page(`task_name=${encodeURIComponent("ä")}`))).toEqual(["b3"]);
    const { data } = await page("task_name=b4");
    await (await service.ask(`/${data[0]?.id}/download`)).arrayBuffer();
    await expect.poll(async () => names(await page("downloaded=true"))).toEqual(["b4"]);
    expect((await page("downloaded=false")).data).toHaveLength(4);
    expect((await page("downloaded=&status=")).data).toHaveLength(5);
  });

  it("takes times as RFC 3339, as a day of UTC and as seconds, both ends included", async () => {
    const { page } = await fiveBatches();
    expect(names(await page("to=2030-01-31"))).toEqual(["B2", "b1"]);
    expect(names(await page("from=2030-02-01"))).toEqual(["b5", "b4", "b3"]);
    expect(names(await page("from=2030-01-31T23:59:59Z&to=2030-02-01T01:00:00%2B01:00"))).toEqual([
      "b3",
      "B2",
    ]);
    const second = Math.floor(START / 1000);
    expect(names(await page(`from=${second}&to=${second}`))).toEqual(["b1"]);
  });

  it.each([
    "status=done",
    "downloaded=yes",
    "limit=0",
    "limit=101",
    "limit=2.5",
    "cursor=abc",
    "cursor=YjU",
    "cursor=10001",
    "from=yesterday",
    "from=2030-02-30",
    "from=2030-02-02&to=2030-02-01",
    "task_name=a&task_name=b",
  ])("the query %s is refused", async (query) => {
    const service = await startTestService({ workers: false });
    const answer = await service.ask(`?${query}`);
    expect(answer.status).toBe(400);
    const param = query.split("=")[0];
    expect(await answer.json()).toMatchObject({ error: { code: "BATCH_IMAGE_INVALID_QUERY", param } });
  });
});

const HOSTILE = '<img src=x onerror=alert(1)> "\u2028\u202e';

/** A batch whose first item has a long hostile prompt, two outputs and a reference. */
async function described() {
  const provider = new FakeProvider();
  provider.answer = async () => made(await tinyPng(3));
  const service = await startTestService({ providers: [provider] });
  const reference = await tinyPng(7);
  const data = reference.toString("base64");
  const prompt = HOSTILE + "x".repeat(200);
  const { id } = await service.submit({
    model: MODEL,
    task_name: HOSTILE,
    items: [
      {
        custom_id: "<b>",
        prompt,
        output_count: 2,
        reference_images: [{ id: HOSTILE, type: "style", mime_type: "image/png", data }],
      },
      { custom_id: "plain", prompt: "plain" },
    ],
  });
  await service.until(id);
  const ask = (path: string) => service.ask(`/${id}/items${path}`);
  return { service, id, ask, prompt, reference };
}

describe("the item list", () => {
  it("has whole prompts, references and images when it is asked for them, and costs always", async () => {
    const { ask, prompt } = await described();
    const { data: bare } = await (await ask("")).json();
    expect(bare[0]).toMatchObject({ custom_id: "<b>_01", cost: 0.0335 });
    expect(Object.keys(bare[0])).not.toEqual(expect.arrayContaining(["prompt"]));
    const { data } = await (await ask("?include=prompt,references,images")).json();
    const image = await tinyPng(3);
    const images = [
      { mime_type: "image/png", width: 8, height: 8, size: image.length, sha256: sha256Hex(image) },
    ];
    const references = [{ id: HOSTILE, type: "style", mime_type: "image/png" }];
    expect(data).toMatchObject([
      { custom_id: "<b>_01", prompt, references, images },
      { custom_id: "<b>_02", prompt, references, images },
      { custom_id: "plain", prompt: "plain", references: [], images },
    ]);
    const { data: some } = await (await ask("?include=images&limit=1")).json();
    expect([some[0].images, some[0].prompt, some[0].references]).toEqual([images, undefined, undefined]);
  });

  it("refuses to include anything else", async () => {
    const { ask } = await described();
    for (const include of ["blob_key", "prompt,", "prompt,__proto__"]) {
      const answer = await ask(`?include=${include}`);
      expect([answer.status, (await answer.json()).error.param]).toEqual([400, "include"]);
    }
  });
});

describe("a reference image of an item", () => {
  it("comes as it was sent, as a file with a safe name", async () => {
    const { ask, reference } = await described();
    const answer = await ask("/%3Cb%3E_02/references/0");
    expect(Buffer.from(await answer.arrayBuffer())).toEqual(reference);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/png",
      etag: `"${sha256Hex(reference)}"`,
      "x-content-type-options": "nosniff",
      "content-disposition": expect.stringContaining("attachment"),
    });
    expect(answer.headers.get("content-disposition")).not.toContain("<b>");
  });

  it("that does not exist is 404, that is lost 500, and that was deleted 410", async () => {
    const { service, id, ask } = await described();
    const codes = async (path: string) => {
      const answer = await ask(path);
      return [answer.status, (await answer.json()).error.code];
    };
    for (const index of ["1", "-1", "x", "0.5", "__proto__"]) {
      expect(await codes(`/%3Cb%3E_01/references/${index}`)).toEqual([404, "BATCH_IMAGE_ITEM_NOT_FOUND"]);
    }
    expect(await codes("/plain/references/0")).toEqual([404, "BATCH_IMAGE_ITEM_NOT_FOUND"]);
    const { stores, blobs } = await openBeside(service.data);
    await blobs.deleteAll(`inputs/${id}/`);
    expect(await codes("/%3Cb%3E_01/references/0")).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
    await stores.write((tx) => tx.batches.update(id, { inputsPurgedAtMs: 1 }));
    expect(await codes("/%3Cb%3E_01/references/0")).toEqual([410, "BATCH_IMAGE_OUTPUT_DELETED"]);
  });
});

describe("another key", () => {
  it("[AUTH-3] gets the answer that an unknown batch gets, on every path, to the last byte", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) }, { "idempotency-key": "k" });
    await service.until(id);
    const headers = { ...(await otherKey(service)).headers, "x-request-id": "same" };
    const ofOneBatch = OPERATIONS.filter(
      ({ surface, path }) => surface === batchApi && path.includes("{id}"),
    );
    expect(ofOneBatch.length).toBeGreaterThanOrEqual(9);
    for (const { method, path: pattern } of ofOneBatch) {
      const path = pattern.slice(pattern.indexOf("{id}") + 4).replace("{custom_id}", "i1");
      const init = { method: method.toUpperCase(), headers };
      const foreign = await service.ask(`/${id}${path}`, init);
      const unknown = await service.ask(`/imgbatch_${"0".repeat(32)}${path}`, init);
      expect([foreign.status, await foreign.text()]).toEqual([404, await unknown.text()]);
      expect([...foreign.headers.keys()]).toEqual([...unknown.headers.keys()]);
    }
    expect(await (await service.ask("", { headers })).json()).toMatchObject({ data: [] });
    const asParent = { model: MODEL, items: items(1), parent_batch_id: id };
    expect((await service.create(asParent, headers)).status).toBe(404);
    const own = await service.submit(
      { model: MODEL, items: items(1) },
      { ...headers, "idempotency-key": "k" },
    );
    expect(own.id).not.toBe(id);
    await service.until(id);
    expect((await service.batch(id)).status).toBe("completed");
  });
});
