import { describe, expect, it } from "vitest";
import type { Carried } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, FakeUpstream, made, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { createOf, ended, line, resultsOf } from "../../support/openai-batches.ts";
import { edit, errorOf, form, generate, imagesOf, refusalOf } from "../../support/openai-images.ts";
import { picture } from "../../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const NOTHING = { quality: null, background: null, seed: null, negativePrompt: null };
const model = {
  id: MODEL,
  sizes: ["1K"],
  prices: { "1K": 0.05 },
  qualities: ["low", "medium", "max"],
  defaultQuality: "medium",
  qualityPrices: { low: { "1K": 0.01 }, medium: { "1K": 0.05 }, max: { "1K": 0.2 } },
  backgrounds: ["opaque", "auto"],
};

/** A service with one upstream that passes these options on. */
async function upstreamService(options: readonly Carried[], more: object = {}) {
  const takes = { maxReferences: 14, ratios: "any", tiers: "any", options } as const;
  const provider = new FakeUpstream("painter", { takes });
  const config = { models: [{ ...model, ...more }] };
  const service = await startTestService({ workers: false, providers: [provider], config });
  const { stores } = await openBeside(service.data);
  return { service, provider, stores };
}

const consent = { headers: { "x-imgbatch-max-cost": "5" } };

describe("the options of an image", () => {
  it("[OPT-8] are made by drawings, and each image has the next seed", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ workers: false, providers: [provider] });
    const made = await imagesOf(
      await generate(service, {
        prompt: "x",
        n: 3,
        quality: "hd",
        background: "transparent",
        seed: 2 ** 32 - 2,
      }),
    );
    expect(made).toMatchObject({ quality: "high", background: "transparent", output_format: "png" });
    const seeds = [2 ** 32 - 2, 2 ** 32 - 1, 0];
    expect(provider.requests.map(({ seed, options }) => ({ seed, options }))).toMatchObject(
      seeds.map((seed) => ({
        seed,
        options: { ...NOTHING, quality: "high", background: "transparent", seed },
      })),
    );
    const jpeg = { prompt: "x", quality: "standard", background: "opaque", output_format: "jpeg" };
    const { prompt: _, ...used } = { ...jpeg, quality: "medium" };
    expect(await imagesOf(await generate(service, jpeg))).toMatchObject(used);
    const impossible = await generate(service, { ...jpeg, background: "transparent" });
    expect([impossible.status, (await errorOf(impossible)).param]).toEqual([400, "background"]);
    const plain = await imagesOf(
      await generate(service, { prompt: "x", quality: "auto", background: "auto" }),
    );
    expect(plain).toMatchObject({ quality: "medium", background: "opaque" });
    expect(provider.requests.at(-1)?.options).toMatchObject(NOTHING);
  });

  it.each([
    ["low", "low", 10_000],
    ["standard", "medium", 50_000],
    ["hd", "medium", 50_000],
    ["XHIGH", "max", 200_000],
    ["max", "max", 200_000],
    [null, "medium", 50_000],
    ["auto", "medium", 50_000],
  ])("[OPT-8] quality %s becomes %s, at its price", async (quality, used, micros) => {
    const { service, provider, stores } = await upstreamService(["quality", "background"]);
    const asked = { prompt: "x", quality, background: "transparent" };
    expect(await imagesOf(await generate(service, asked, consent))).toMatchObject({
      quality: used,
      background: "opaque",
    });
    expect(provider.requests[0]?.options).toMatchObject({ background: "opaque" });
    expect((await stores.read.usage.list()).map(({ amountMicroUsd }) => amountMicroUsd)).toEqual([micros]);
  });

  it("[OPT-6] that the upstream cannot pass on are not asked for, and a seed and a mask are refused", async () => {
    const { service, provider } = await upstreamService([]);
    const asked = { prompt: "x", quality: "max", background: "opaque" };
    expect(await imagesOf(await generate(service, asked, consent))).toMatchObject({ background: "auto" });
    expect(provider.requests.map(({ options }) => options)).toMatchObject([NOTHING]);
    const refused = async (answer: Promise<Response>) => (await refusalOf(await answer)).slice(0, 3);
    const invalid = (param: string) => [400, "REALTIME_INVALID_ARGUMENT", param];
    expect(await refused(generate(service, { prompt: "x", seed: 4 }, consent))).toEqual(invalid("seed"));
    const masked = form(["prompt", "x"], ["image", await tinyPng()], ["mask", await tinyPng(1)]);
    expect(await refused(edit(service, masked, consent))).toEqual(invalid("mask"));
    expect(provider.requests).toHaveLength(1);
  });

  it("[OPT-6] are never passed to another provider that cannot carry them", async () => {
    const takes = { maxReferences: 14, ratios: "any", tiers: "any" } as const;
    const first = new FakeUpstream("first", { takes: { ...takes, options: ["seed"] } });
    const second = new FakeUpstream("second", { takes });
    first.answer = async () => Promise.reject(new Error("no answer"));
    const service = await startTestService({ workers: false, providers: [first, second] });
    const answer = await generate(service, { prompt: "x", seed: 4 }, consent);
    expect([answer.status, answer.headers.get("x-should-retry")]).toEqual([424, "false"]);
    expect([first.requests.length, second.requests.length]).toEqual([1, 0]);
  });

  it("with a wrong value are refused", async () => {
    const service = await startTestService({ workers: false });
    for (const [wrong, param] of [
      [{ quality: "best" }, "quality"],
      [{ background: "pink" }, "background"],
      [{ seed: -1 }, "seed"],
      [{ seed: 1.5 }, "seed"],
      [{ seed: 2 ** 32 }, "seed"],
    ] as const)
      expect(await refusalOf(await generate(service, { prompt: "x", ...wrong }))).toEqual([
        400,
        "REALTIME_INVALID_ARGUMENT",
        param,
      ]);
  });
});

describe("a mask", () => {
  it("[OPT-7] reaches an upstream that takes one, from a form and from JSON", async () => {
    const { service, provider } = await upstreamService(["mask"]);
    const [png, mask] = [await tinyPng(), await tinyPng(1)];
    const read: unknown[] = [];
    provider.answer = async ({ references, mask }) => {
      read.push([await Promise.all(references.map((each) => each.read())), await mask?.read()]);
      return made(png);
    };
    await imagesOf(await edit(service, form(["mask", mask], ["prompt", "x"], ["image", png]), consent));
    const url = (bytes: Buffer) => ({ image_url: `data:image/png;base64,${bytes.toString("base64")}` });
    const json = { prompt: "x", images: [url(png)], mask: url(mask) };
    await imagesOf(await edit(service, json, consent));
    expect(read).toEqual([
      [[png], mask],
      [[png], mask],
    ]);
  });

  it("[OPT-7] is a PNG of the size of the first image", async () => {
    const { service, provider } = await upstreamService(["mask"]);
    const png = await tinyPng();
    for (const [mask, words] of [
      [await tinyJpeg(), "must be a PNG"],
      [await picture({ widthPx: 9, heightPx: 8 }), "must have the size of the first image, 8x8"],
      [Buffer.from("no image"), "not a PNG"],
    ] as const) {
      const answer = await edit(service, form(["prompt", "x"], ["image", png], ["mask", mask]), consent);
      expect(await errorOf(answer)).toMatchObject({ param: "mask", message: expect.stringContaining(words) });
    }
    expect(await refusalOf(await generate(service, { prompt: "x", mask: {} }, consent))).toMatchObject({
      2: "mask",
    });
    expect(provider.requests).toEqual([]);
  });
});

it("[OPT-8] lines of a batch have their own options and prices, and the answers tell what was used", async () => {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider], config: { models: [model] } });
  const batch = await ended(
    service,
    await createOf(service, [
      line("a", "x", { quality: "xhigh", background: "transparent", seed: 7 }),
      line("b", "y", {}),
      line("c", "z", { quality: "best" }),
    ]),
  );
  const results = await resultsOf(service, batch.output_file_id);
  expect(results.map(({ response }) => response?.body)).toMatchObject([
    { quality: "max", background: "transparent" },
    { quality: "medium", background: "opaque" },
  ]);
  const [failed] = await resultsOf(service, batch.error_file_id);
  expect(failed?.response?.body.error?.param).toBe("quality");
  const asked = new Map(provider.requests.map((request) => [request.prompt, request]));
  expect(asked.get("x")).toMatchObject({
    seed: 7,
    options: { ...NOTHING, quality: "max", background: "transparent", seed: 7 },
  });
  expect(asked.get("y")?.options).toMatchObject(NOTHING);
  const made = await service.items(batch.id.replace("batch_", "imgbatch_"));
  expect(made.map(({ cost }) => cost)).toEqual([0.1, 0.025, null]);
});
