import sharp from "sharp";
import { expect, it } from "vitest";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { FakeProvider, FakeUpstream, tinyPng, troubled } from "../../support/fake-provider.ts";
import { MODEL, startTestService, type TestService } from "../../support/service.ts";

const create = (service: TestService, items: object[], more: object = {}, key?: string) =>
  service.ask("", {
    method: "POST",
    headers: { "content-type": "application/json", ...(key && { "idempotency-key": key }) },
    body: JSON.stringify({ model: MODEL, items, ...more }),
  });
const TAKES_ALL = { maxReferences: 14, ratios: "any", tiers: "any", options: ["quality", "seed"] } as const;
const bodyOf = async (answer: Response) => (await answer.json()) as Record<string, unknown>;

it("[OPT-1] items have their own size, ratio, quality, background, seed and negative prompt, and their own price", async () => {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider] });
  const options = { aspect_ratio: "16:9", image_size: "2K", seed: 7, negative_prompt: " snow " };
  const answer = await create(service, [
    { prompt: "a fox", custom_id: "a", output_count: 2, options },
    { prompt: "an owl", options: { background: "transparent", quality: "high" } },
    { prompt: "a boat", options: {} },
  ]);
  const batch = await bodyOf(answer);
  // Two images of 2K (0.101) and two of 1K (0.067), at half the price; 0.6 of it is held.
  expect([answer.status, batch.estimated_cost, batch.hold_amount]).toEqual([200, 0.168, 0.2016]);
  await expect.poll(async () => (await bodyOf(await service.ask(`/${batch.id}`))).status).toBe("completed");
  expect((await service.items(String(batch.id))).map((item) => [item.options, item.cost])).toEqual([
    [{ ...options, negative_prompt: "snow" }, 0.0505],
    [{ ...options, negative_prompt: "snow", seed: 8 }, 0.0505],
    [{ background: "transparent", quality: "high" }, 0.0335],
    [null, 0.0335],
  ]);
  expect((await bodyOf(await service.ask(`/${batch.id}`))).actual_cost).toBe(0.168);
  const asked = provider.requests.map(({ prompt, seed, options }) => [prompt, seed, options]);
  const shape = { size: "2K", ratio: "16:9", keepsRatio: false } as const;
  expect(asked).toEqual(
    expect.arrayContaining([
      ["a fox", 7, { ...DEFAULT_OPTIONS, ...shape, seed: 7, negativePrompt: "snow" }],
      ["a fox", 8, { ...DEFAULT_OPTIONS, ...shape, seed: 8, negativePrompt: "snow" }],
      ["an owl", expect.any(Number), { ...DEFAULT_OPTIONS, background: "transparent", quality: "high" }],
      ["a boat", expect.any(Number), DEFAULT_OPTIONS],
    ]),
  );
});

it("[OPT-2] an option that the model does not take, and one that is none, are refused with item and field", async () => {
  const service = await startTestService();
  const refused: [object | string, string, string][] = [
    [{ aspect_ratio: "7:3" }, "aspect_ratio", '"7:3" is not possible; the model takes 1:1, 2:3'],
    [{ image_size: "8K" }, "image_size", "the model takes 1K, 2K, 4K"],
    [{ quality: "best" }, "quality", "the model takes low, medium, high"],
    [{ background: "pink" }, "background", "the model takes transparent, opaque, auto"],
    [{ seed: -1 }, "seed", "must be a whole number from 0 to 4294967295"],
    [{ seed: 1.5 }, "seed", "must be a whole number"],
    [{ negative_prompt: 5 }, "negative_prompt", "must be a text"],
    [{ qualty: "low" }, "qualty", "did you mean quality?"],
    [{ size: "2K" }, "size", "the options are aspect_ratio, image_size"],
  ];
  for (const [options, field, words] of refused) {
    const answer = await create(service, [{ prompt: "a" }, { prompt: "b", options }]);
    const { error } = (await bodyOf(answer)) as { error: { code: string; message: string; param: string } };
    expect([answer.status, error.code]).toEqual([400, "BATCH_IMAGE_INVALID_ITEMS"]);
    expect(error.message).toContain(`items[1].options.${field}`);
    expect(error.message).toContain(words);
  }
  const jpeg = { response_mime_type: "image/jpeg" };
  const answer = await create(service, [{ prompt: "a", options: { background: "transparent" } }], jpeg);
  expect(((await bodyOf(answer)).error as { message: string }).message).toContain(
    "a JPEG has no transparency",
  );
  expect((await create(service, [{ prompt: "a", options: "2K" }])).status).toBe(400);
  expect((await bodyOf(await service.ask(""))).data).toEqual([]);
});

it("[OPT-3] no options, null, {} and what the item has anyway are the same request; others are another one", async () => {
  const service = await startTestService();
  const same = { image_size: "1K", quality: "medium", background: "auto", seed: null, aspect_ratio: null };
  const first = await bodyOf(await create(service, [{ prompt: "a" }], {}, "key"));
  for (const options of [null, {}, same]) {
    const again = await create(service, [{ prompt: "a", options }], {}, "key");
    expect([again.headers.get("idempotency-replayed"), (await bodyOf(again)).id]).toEqual(["true", first.id]);
  }
  expect((await create(service, [{ prompt: "a", options: { seed: 1 } }], {}, "key")).status).toBe(409);
});

it("[OPT-3] the same request is a replay while its upstream is disabled, beside one that takes less, too", async () => {
  const upstream = new FakeUpstream("vendor", { takes: TAKES_ALL });
  upstream.answer = () => Promise.reject(troubled("credential"));
  const other = new FakeUpstream("other");
  const words = { qualities: ["low", "high"], defaultQuality: "low" };
  const service = await startTestService({
    ...{ providers: [upstream, other], config: { models: [{ id: MODEL, prices: { "1K": 0.1 }, ...words }] } },
  });
  const items = [{ prompt: "a", options: { quality: "low", seed: 7 } }];
  const headers = {
    "content-type": "application/json",
    "idempotency-key": "key",
    "x-imgbatch-max-cost": "1",
  };
  const body = JSON.stringify({ model: MODEL, items });
  const ask = () => service.ask("", { method: "POST", headers, body });
  const { id } = await bodyOf(await ask());
  await expect.poll(() => upstream.requests.length).toBe(1);
  await expect.poll(async () => (await bodyOf(await service.ask(`/${id}`))).waiting).not.toBeNull();
  const again = await ask();
  expect([again.status, (await bodyOf(again)).id]).toEqual([200, id]);
  expect(other.requests).toEqual([]);
});

it("a model's own bound of seeds holds for the last output, too, and is in the list of models", async () => {
  const takes = { maxReferences: 14, ratios: "any", tiers: "any", options: ["seed"] } as const;
  const config = { models: [{ id: MODEL, prices: { "1K": 0.1 }, maxSeed: 2 ** 31 - 1 }] };
  const service = await startTestService({ providers: [new FakeUpstream("vendor", { takes })], config });
  const list = await (await service.ask("/models")).json();
  expect(list.data[0].options).toMatchObject({ seed: true, max_seed: 2147483647 });
  for (const [count, most] of [
    [1, 2147483647],
    [3, 2147483645],
  ] as const) {
    const item = { prompt: "a fox", output_count: count, options: { seed: most + 1 } };
    const refused = await create(service, [item], {}, undefined);
    expect(refused.status).toBe(400);
    expect(JSON.stringify(await bodyOf(refused))).toContain(`must be a whole number from 0 to ${most}`);
  }
});

it("the list of models announces what any provider of the model takes, which is what a batch may ask for", async () => {
  const upstreamOf = (name: string, tier: "1K" | "2K", option: "seed" | "negativePrompt") =>
    new FakeUpstream(name, {
      isFree: true,
      takes: { maxReferences: 14, ratios: "any", tiers: [tier], options: [option] },
    });
  const providers = [upstreamOf("first", "1K", "seed"), upstreamOf("second", "2K", "negativePrompt")];
  const models = [{ id: MODEL, sizes: ["1K", "2K"], prices: { "1K": 0.1, "2K": 0.2 } }];
  const service = await startTestService({ providers, config: { models } });
  const listed = async (query = "") => {
    const { data } = await bodyOf(await service.ask(`/models${query}`));
    return (data as { options: object; prices: object[] }[])[0];
  };
  const union = { image_size: ["1K", "2K"], seed: true, negative_prompt: true };
  expect(await listed()).toMatchObject({ provider: "first", options: union });
  expect((await listed())?.prices).toHaveLength(2);
  const own = { image_size: ["2K"], seed: false, negative_prompt: true };
  expect(await listed("?provider=second")).toMatchObject({ provider: "second", options: own });
  const options = { image_size: "2K", negative_prompt: "snow" };
  expect((await create(service, [{ prompt: "a", options }])).status).toBe(200);
});

it("[OPT-3] the same request is a replay after its model has got another default quality, or does not take it any more", async () => {
  const model = (more: object) => ({
    providers: [new FakeUpstream("vendor", { takes: TAKES_ALL, isFree: true })],
    config: {
      models: [
        { id: MODEL, prices: { "1K": 0.1 }, qualities: ["low", "high"], defaultQuality: "low", ...more },
      ],
    },
  });
  const first = await startTestService(model({}));
  const low = [{ prompt: "a", options: { quality: "low" } }];
  const high = [{ prompt: "a", options: { quality: "high" } }];
  const made = [
    await bodyOf(await create(first, low, {}, "low")),
    await bodyOf(await create(first, high, {}, "high")),
  ];
  expect(made.map(({ id }) => typeof id)).toEqual(["string", "string"]);
  await first.close(0);
  for (const more of [{ defaultQuality: "high" }, { qualities: ["best"], defaultQuality: "best" }]) {
    const later = await startTestService({ data: first.data, ...model(more) });
    const again = [await create(later, low, {}, "low"), await create(later, high, {}, "high")];
    expect(again.map(({ status }) => status)).toEqual([200, 200]);
    expect(await Promise.all(again.map(async (answer) => (await bodyOf(answer)).id))).toEqual(
      made.map(({ id }) => id),
    );
    expect((await create(later, [{ prompt: "another" }], {}, "low")).status).toBe(409);
    await later.close(0);
  }
});

it("[OPT-4] a reference is sent once: later items name its bytes by their hash", async () => {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider] });
  const png = await tinyPng();
  const sha256 = sha256Hex(png);
  const sent = { mime_type: "image/png", data: png.toString("base64") };
  const answer = await create(service, [
    { prompt: "a", reference_images: [sent] },
    { prompt: "b", reference_images: [{ sha256, id: "again" }] },
  ]);
  const { id } = await bodyOf(answer);
  expect(answer.status).toBe(200);
  await expect.poll(async () => (await bodyOf(await service.ask(`/${id}`))).status).toBe("completed");
  expect(provider.requests.map(({ references }) => references.length)).toEqual([1, 1]);
  const wrong = [
    [{ sha256: "0".repeat(64) }, "no earlier reference of this request has these bytes"],
    [{ sha256, data: "x" }, "cannot be given together with"],
    [{ data: sent.data }, "is required: the type of the image"],
  ] as const;
  for (const [reference, words] of wrong) {
    const refused = await create(service, [
      { prompt: "a", reference_images: [sent] },
      { prompt: "b", reference_images: [reference] },
    ]);
    const { error } = (await bodyOf(refused)) as { error: { code: string; message: string } };
    expect(error.code).toBe("BATCH_IMAGE_INVALID_REFERENCE_IMAGE");
    expect(error.message).toContain(words);
  }
});

it("[OPT-5] the drawn image has the size, the ratio and the transparency that its item asks for", async () => {
  const drawings = { name: "procedural", concurrency: 1, models: () => true, clock: systemClock };
  const service = await startTestService({ providers: [createProceduralProvider(drawings)] });
  const options = { aspect_ratio: "16:9", image_size: "2K", background: "transparent" };
  const { id } = await bodyOf(await create(service, [{ prompt: "a fox", custom_id: "a", options }]));
  await expect.poll(async () => (await bodyOf(await service.ask(`/${id}`))).status).toBe("completed");
  const image = Buffer.from(await (await service.ask(`/${id}/items/a/content`)).arrayBuffer());
  const { width, height, hasAlpha } = await sharp(image).metadata();
  expect({ width, height, hasAlpha }).toEqual({ width: 2752, height: 1536, hasAlpha: true });
});
