import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { errorBody } from "../../../src/contract/errors.ts";
import { ProviderError, toldRatio } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { picture } from "../../support/realtime.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";

const png64 = async () => (await tinyPng()).toString("base64");
/** A picture that stands upright but is stored on its side. */
const turnedJpeg = () =>
  sharp({ create: { width: 600, height: 300, channels: 3, background: "#654" } })
    .withMetadata({ orientation: 6 })
    .jpeg()
    .toBuffer();
const codeOf = async (answer: Response) => ((await answer.json()) as ReturnType<typeof errorBody>).error;

describe("creating a batch", () => {
  it("[BATCH-1] answers the whole batch object, queued and unpaid", async () => {
    const service = await startTestService();
    const batch = await service.submit({
      model: MODEL,
      task_name: "  spring  ",
      metadata: { team: "blue" },
      items: [{ prompt: "a red fox" }, { custom_id: "pair", prompt: "two suns", output_count: 2 }],
    });
    expect(batch).toEqual({
      id: expect.stringMatching(/^imgbatch_[0-9a-f]{32}$/),
      object: "image.batch",
      task_name: "spring",
      status: "queued",
      model: MODEL,
      parent_batch_id: null,
      metadata: { team: "blue" },
      provider: "procedural",
      item_count: 3,
      success_count: 0,
      fail_count: 0,
      pending_count: 3,
      estimated_cost: 0.1005,
      hold_amount: 0.1206,
      actual_cost: null,
      play_money: true,
      created_at: expect.any(Number),
      submitted_at: expect.any(Number),
      settled_at: null,
      downloaded_at: null,
      output_deleted_at: null,
      expires_at: null,
      error: null,
      source: "batch",
      waiting: null,
      queued_behind: null,
      upstream_jobs: [],
    });
    const ids = (await service.items(batch.id)).map((item) => item.custom_id);
    expect(ids).toEqual(["item_000001", "pair_01", "pair_02"]);
  });

  it.each([
    ["no model", { items: items(1) }, "BATCH_IMAGE_INVALID_MODEL", "model"],
    ["an unknown model", { model: "other", items: items(1) }, "BATCH_IMAGE_INVALID_MODEL", "model"],
    ["no items", { model: MODEL }, "BATCH_IMAGE_INVALID_ITEMS", "items"],
    ["an empty list", { model: MODEL, items: [] }, "BATCH_IMAGE_INVALID_ITEMS", "items"],
    [
      "an empty prompt",
      { model: MODEL, items: [{ prompt: " " }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].prompt",
    ],
    [
      "a prompt of a wrong type",
      { model: MODEL, items: [{ prompt: 7 }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].prompt",
    ],
    [
      "half a surrogate pair",
      { model: MODEL, items: [{ prompt: "a\ud800" }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].prompt",
    ],
    ["2K", { model: MODEL, items: items(1), image_size: "2K" }, "BATCH_IMAGE_INVALID_ITEMS", "image_size"],
    [
      "five outputs",
      { model: MODEL, items: [{ prompt: "a", output_count: 5 }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].output_count",
    ],
    ["201 items", { model: MODEL, items: items(201) }, "BATCH_IMAGE_INVALID_ITEMS", "items"],
    [
      "a path as id",
      { model: MODEL, items: [{ custom_id: "a/b", prompt: "a" }] },
      "BATCH_IMAGE_INVALID_ITEMS",
      "items[0].custom_id",
    ],
    [
      "ids that collide after expansion",
      {
        model: MODEL,
        items: [
          { custom_id: "a_01", prompt: "x" },
          { custom_id: "a", prompt: "y", output_count: 2 },
        ],
      },
      "BATCH_IMAGE_DUPLICATE_CUSTOM_ID",
      "items[1].custom_id",
    ],
    [
      "a long prompt",
      { model: MODEL, items: [{ prompt: "x".repeat(8001) }] },
      "BATCH_IMAGE_PROMPT_TOO_LONG",
      "items[0].prompt",
    ],
    [
      "too many images",
      { model: MODEL, items: items(60).map((i) => ({ ...i, output_count: 4 })) },
      "BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES",
      "items",
    ],
    [
      "an unknown type of image",
      { model: MODEL, items: items(1), response_mime_type: "image/gif" },
      "BATCH_IMAGE_INVALID_ITEMS",
      "response_mime_type",
    ],
    [
      "metadata that is no text",
      { model: MODEL, items: items(1), metadata: { a: 1 } },
      "BATCH_IMAGE_INVALID_ITEMS",
      "metadata.a",
    ],
  ])("[BATCH-2] refuses %s, and names the field", async (_, body, code, param) => {
    const service = await startTestService({ workers: false });
    const answer = await service.create(body);
    expect(answer.status).toBe(400);
    expect(await codeOf(answer)).toMatchObject({ type: "invalid_request_error", code, param });
  });

  it("answers the first failure of a fixed order", async () => {
    const service = await startTestService({ workers: false });
    const both = {
      model: "unknown",
      items: [
        { custom_id: "a", prompt: "x".repeat(9000) },
        { custom_id: "a", prompt: "y" },
      ],
    };
    expect((await codeOf(await service.create(both))).code).toBe("BATCH_IMAGE_DUPLICATE_CUSTOM_ID");
    const badReference = { ...both, items: both.items.map((i) => ({ ...i, reference_images: [{}] })) };
    expect((await codeOf(await service.create(badReference))).code).toBe("BATCH_IMAGE_DUPLICATE_CUSTOM_ID");
    const long = { ...both, items: both.items.slice(0, 1) };
    expect((await codeOf(await service.create(long))).code).toBe("BATCH_IMAGE_PROMPT_TOO_LONG");
  });

  it.each([
    ["not Base64", () => ({ mime_type: "image/png", data: "%%%" })],
    ["a data URL", async () => ({ mime_type: "image/png", data: `data:image/png;base64,${await png64()}` })],
    [
      "half an image",
      async () => ({ mime_type: "image/png", data: (await tinyPng()).subarray(0, 60).toString("base64") }),
    ],
    [
      "another type than it says",
      async () => ({ mime_type: "image/png", data: (await tinyJpeg()).toString("base64") }),
    ],
    ["no image", () => ({ mime_type: "image/png", data: Buffer.from("<svg/>").toString("base64") })],
    ["nothing", () => ({})],
    ["no object", () => "image.png"],
    ["no data", () => ({ mime_type: "image/png" })],
    ["a storage reference", () => ({ mime_type: "image/png", storage_uri: "s3://bucket/x" })],
  ])("refuses a reference image that is %s", async (_, reference) => {
    const service = await startTestService({ workers: false });
    const answer = await service.create({
      model: MODEL,
      items: [{ prompt: "a", reference_images: [await reference()] }],
    });
    expect(answer.status).toBe(400);
    expect((await codeOf(answer)).code).toBe("BATCH_IMAGE_INVALID_REFERENCE_IMAGE");
  });

  it("hands reference images to the provider as they were sent, and limits their number by model", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ providers: [provider] });
    const reference = { mime_type: "image/png", data: await png64() };
    const { id } = await service.submit({
      model: MODEL,
      items: [{ prompt: "a", reference_images: [reference, reference] }],
    });
    await service.until(id);
    const given = provider.requests[0]?.references.map((reference) => reference.read()) ?? [];
    expect(await Promise.all(given)).toEqual([await tinyPng(), await tinyPng()]);
    const four = { model: MODEL, items: [{ prompt: "a", reference_images: Array(4).fill(reference) }] };
    expect((await codeOf(await service.create(four))).code).toBe("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES");
  });

  it("an item keeps the ratio of its first reference, and so does a retry of it", async () => {
    const provider = new FakeProvider();
    provider.answer = async () => {
      throw new ProviderError("PROVIDER_ITEM_FAILED", "no", { retryable: false });
    };
    const service = await startTestService({ providers: [provider] });
    const [wide, tall] = [await picture({ widthPx: 600, heightPx: 300 }), await turnedJpeg()];
    const references = [
      { mime_type: "image/png", data: wide.toString("base64") },
      { mime_type: "image/jpeg", data: tall.toString("base64") },
    ];
    const { id } = await service.submit({
      model: MODEL,
      items: [
        { prompt: "wide", reference_images: references },
        { prompt: "tall", reference_images: references.toReversed() },
        { prompt: "none" },
      ],
    });
    await service.until(id);
    const asked = () =>
      provider.requests
        .splice(0)
        .map((request) => [request.prompt, toldRatio(request), request.pixels.widthPx])
        .sort();
    const expected = [
      ["none", "1:1", 1024],
      ["tall", null, 768],
      ["wide", null, 1376],
    ];
    expect(asked()).toEqual(expected);
    const again = await service.ask(`/${id}/retry`, { method: "POST" });
    await service.until(((await again.json()) as { id: string }).id);
    expect(asked()).toEqual(expected);
  });

  it("[BATCH-1] metadata comes back whole, whatever its keys are called", async () => {
    const service = await startTestService();
    const metadata = '{"__proto__":"x","constructor":"y"}';
    const body = (text: string) => `{"model":"${MODEL}","items":[{"prompt":"a"}],"metadata":${text}}`;
    const headers = { "content-type": "application/json", "idempotency-key": "k" };
    const created = await service.ask("", { method: "POST", body: body(metadata), headers });
    const text = await created.text();
    expect(text).toContain(`"metadata":${metadata}`);
    const { id } = JSON.parse(text);
    const other = await service.ask("", {
      method: "POST",
      body: body(metadata.replace('"x"', '"w"')),
      headers,
    });
    expect(other.status).toBe(409);
    const nested = await service.ask("", { method: "POST", body: body('{"__proto__":{"a":"b"}}'), headers });
    expect([nested.status, (await codeOf(nested)).code]).toEqual([400, "BATCH_IMAGE_INVALID_ITEMS"]);
    await service.until(id);
  });

  it("names the first ancestor as parent, and refuses a parent of another key", async () => {
    const service = await startTestService();
    const first = await service.submit({ model: MODEL, items: items(1) });
    const second = await service.submit({ model: MODEL, items: items(1), parent_batch_id: first.id });
    const third = await service.submit({ model: MODEL, items: items(1), parent_batch_id: second.id });
    expect(third.parent_batch_id).toBe(first.id);
    const answer = await service.create({ model: MODEL, items: items(1), parent_batch_id: "imgbatch_other" });
    expect([answer.status, (await codeOf(answer)).code]).toEqual([404, "BATCH_IMAGE_NOT_FOUND"]);
    for (const { id } of [first, second, third]) await service.until(id);
  });
});

describe("an idempotency key", () => {
  it("replays although price, provider, workers and balance would refuse now", async () => {
    const first = await startTestService();
    const body = { model: MODEL, items: items(1) };
    const { id } = await first.submit(body, { "idempotency-key": "k1" });
    await first.until(id);
    await first.close(0);
    const second = await startTestService({ data: first.data, providers: [], workers: false });
    const answer = await second.create(body, { "idempotency-key": "k1" });
    expect(answer.headers.get("idempotency-replayed")).toBe("true");
    expect(await answer.json()).toMatchObject({ id, status: "completed" });
  });

  it("is refused when it is no printable ASCII of up to 255 characters", async () => {
    const service = await startTestService({ workers: false });
    const answer = await service.create(
      { model: MODEL, items: items(1) },
      { "idempotency-key": "x".repeat(256) },
    );
    expect(await codeOf(answer)).toMatchObject({
      code: "BATCH_IMAGE_INVALID_ITEMS",
      param: "Idempotency-Key",
    });
  });
});

describe("admission", () => {
  it.each([
    ["no price", { config: { models: [{ id: MODEL }] } }, 400, "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING"],
    ["no provider", { providers: [] }, 502, "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE"],
    ["no workers", { workers: false }, 502, "BATCH_IMAGE_QUEUE_FAILED"],
    ["the feature off", { config: { features: { batchImages: false } } }, 404, "BATCH_IMAGE_DISABLED"],
    [
      "a group without batches",
      { config: { groups: [{ name: "default", allowBatchImages: false }] } },
      403,
      "BATCH_IMAGE_GROUP_DISABLED",
    ],
    [
      "a group of another platform",
      { config: { groups: [{ name: "default", platform: "other" }] } },
      403,
      "BATCH_IMAGE_GROUP_DISABLED",
    ],
    [
      "too little money",
      { config: { models: [{ id: MODEL, prices: { "1K": 5000 } }] } },
      402,
      "BATCH_IMAGE_INSUFFICIENT_BALANCE",
    ],
  ])("refuses a batch with %s", async (_, options, status, code) => {
    const service = await startTestService(options);
    const answer = await service.create({ model: MODEL, items: items(1) });
    expect([answer.status, (await codeOf(answer)).code]).toEqual([status, code]);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.batches.all()).toEqual([]);
  });

  it("[MONEY-2] accepts exactly as many concurrent batches as the balance pays for", async () => {
    const models = [{ id: MODEL, prices: { "1K": 500 } }];
    const service = await startTestService({ config: { models } });
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => service.create({ model: MODEL, items: items(1) })),
    );
    const statuses = answers.map((a) => a.status).sort();
    expect(statuses).toEqual([...Array(3).fill(200), ...Array(9).fill(402)]);
    for (const answer of answers.filter((a) => a.ok))
      await service.until(((await answer.json()) as { id: string }).id);
  });
});
