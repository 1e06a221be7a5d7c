import { describe, expect, it } from "vitest";
import { parseConfig, upstreamConfig } from "../../src/config/load.ts";
import type { UpstreamEntry } from "../../src/contract/provider-entries.ts";
import { priceBatchImage } from "../../src/domain/billing/payer.ts";
import { Offers } from "../../src/domain/models.ts";
import type { ImageProvider } from "../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { findPreset, PRESETS, priceOf } from "../../src/providers/catalogue/catalogue.ts";
import { asItemProvider } from "../../src/providers/upstream/provider.ts";

const FREE = ["localai", "ollama", "sdapi"];

/** The provider of a preset, without the adapter that talks to the upstream. */
function providerOf(entry: UpstreamEntry, secrets: Record<string, string> = {}) {
  const adapter = {
    address: "nowhere",
    takes: { maxReferences: 0, ratios: "any", tiers: "any" },
    generate: () => Promise.reject(new Error("never called")),
    probe: async () => {},
    close: async () => {},
  } as const;
  return asItemProvider(entry, adapter, { clock: systemClock, secret: (name) => secrets[name] ?? null });
}

describe.each(PRESETS)("the preset $name", ({ name, keyVariable, models, isOfJobs }) => {
  const config = parseConfig(upstreamConfig(name), name);
  const entry = config.providers[0] as UpstreamEntry;

  it("is a whole configuration, whose one provider serves all its models", () => {
    const provider = providerOf(entry, keyVariable === null ? {} : { [keyVariable]: "key" });
    expect(config.providers.map((each) => each.name)).toEqual([name]);
    expect(config.models.length).toBeGreaterThan(0);
    for (const { id } of config.models) {
      expect(id).toMatch(/^[\w.-]+$/);
      expect(provider.serves(id)).toBe(true);
    }
    expect(provider.upstream).toMatchObject({ disabled: null, isFree: FREE.includes(name) });
  });

  it("bills the list price of the upstream for an image of a batch, and holds no more", () => {
    const [group] = config.groups;
    for (const [at, model] of config.models.entries()) {
      const usd = priceOf(models[at] ?? expect.fail());
      expect(model.prices["1K"] ?? null).toBe(usd);
      const kind = isOfJobs ? "job" : "item";
      const price = priceBatchImage(model, group ?? expect.fail(), entry.rateMultiplier, { kind });
      const micros = Math.round((usd ?? 0) * (isOfJobs ? (model.jobPrice ?? 1) : 1) * 1e6);
      expect(price).toEqual(
        usd === null ? null : expect.objectContaining({ imageMicroUsd: micros, holdMicroUsd: micros }),
      );
      expect([model.id, FREE.includes(name)]).toEqual([model.id, usd === 0]);
    }
    // The default has a price, except for a program that nobody knows.
    expect(config.models[0]?.prices["1K"] === undefined).toBe(name === "command");
  });

  it("names the variable of its key, and is disabled without it", () => {
    const { disabled } = providerOf(entry).upstream ?? {};
    expect(disabled).toBe(keyVariable === null ? null : `the environment variable ${keyVariable} is not set`);
  });
});

describe("an entry with a preset", () => {
  const parse = (...providers: object[]) => parseConfig({ providers }, "test");

  it("has what the preset has where it says nothing itself", () => {
    const { providers, models } = parse({
      preset: "google",
      baseUrl: "https://proxy.example",
      concurrency: 8,
    });
    expect(providers).toMatchObject([
      { name: "google", type: "native", baseUrl: "https://proxy.example", concurrency: 8, preset: "google" },
    ]);
    expect(models[0]).toMatchObject({ id: "gemini-nano-banana-2.1", asOf: "2026-10-07" });
    expect(parse({ preset: "openrouter" }).providers[0]).toMatchObject({
      models: { "seedream-4.5": "bytedance-seed/seedream-4.5" },
    });
  });

  it("adds its models behind those of the first, each once; models of the configuration define the set", () => {
    const { models } = parse({ preset: "xai" }, { preset: "google-batch" }, { preset: "google" });
    const ids = models.map(({ id }) => id);
    expect(ids.slice(0, 4)).toEqual([
      "grok-imagine-image",
      "grok-imagine-image-2.0",
      "grok-imagine-image-quality",
      "gemini-nano-banana-2.1",
    ]);
    expect(new Set(ids).size).toBe(ids.length);
    const own = [{ id: "mine", prices: { "1K": 1 } }];
    expect(parseConfig({ models: own, providers: [{ preset: "google" }] }, "test").models).toMatchObject(own);
  });

  it("charges what the upstream charges: all of the price, and for a job the share that jobs cost", () => {
    const { models, groups } = parse({ preset: "google-batch" }, { preset: "google" });
    const [model = expect.fail(), group = expect.fail()] = [models[0], groups[0]];
    const micros = (kind: "job" | "item") => priceBatchImage(model, group, 1, { kind });
    expect(micros("item")).toMatchObject({ imageMicroUsd: 33_600, holdMicroUsd: 33_600 });
    expect(micros("job")).toMatchObject({ imageMicroUsd: 16_800, holdMicroUsd: 33_600 });
    const named = parseConfig({ providers: [{ preset: "google" }], groups: [{ name: "team" }] }, "test");
    expect(named.groups).toMatchObject([{ name: "team", batchDiscount: 1, holdMultiplier: 1 }]);
    const cheap = { ...group, batchDiscount: 0.2, holdMultiplier: 0.2 };
    expect(priceBatchImage(model, cheap, 1, { kind: "job" })?.holdMicroUsd).toBe(16_800);
  });

  it("of jobs does not serve a model without jobs", () => {
    const { providers, models } = parse({ preset: "openai-batch" }, { preset: "openai" });
    const [jobs, items] = (providers as UpstreamEntry[]).map((entry) =>
      providerOf(entry, { OPENAI_API_KEY: "k" }),
    );
    const asJobs = { ...jobs, kind: "job" } as unknown as ImageProvider;
    const named = (id: string) =>
      new Offers([asJobs, items ?? expect.fail()], models).first(id)?.provider.name;
    expect(named("gpt-image-2")).toBe("openai-batch");
    expect(named("gpt-image-2.6-flare")).toBe("openai");
  });

  it("is named in the error when there is none of that name, or when a field is wrong", () => {
    expect(() => parse({ preset: "gogle" })).toThrow(
      'test: providers.0.preset: there is no preset "gogle": did you mean google?',
    );
    expect(() => parse({ preset: "google", concurency: 8 })).toThrow(/providers\.0.*concurency/);
  });

  it("[VENDOR-3] a price of 0 needs a provider that is free", () => {
    const models = [{ id: "m", prices: { "1K": 0 } }];
    const config = (entry: object) => parseConfig({ models, providers: [entry] }, "test");
    expect(() => config({ preset: "xai" })).toThrow(
      'test: models.0.prices.1K: is 0, and xai is not free: write what an image costs, or "free": true in that provider',
    );
    const byQuality = {
      id: "m",
      qualities: ["low"],
      defaultQuality: "low",
      qualityPrices: { low: { "1K": 0 } },
    };
    expect(() => parseConfig({ models: [byQuality], providers: [{ preset: "xai" }] }, "test")).toThrow(
      "models.0.qualityPrices.low.1K: is 0",
    );
    expect(config({ preset: "xai", free: true }).models).toMatchObject(models);
    expect(config({ preset: "xai", models: ["other"] }).models).toMatchObject(models);
    expect(config({ name: "drawn", type: "procedural" }).models).toMatchObject(models);
    expect(parse({ preset: "command", free: true }).models[0]?.prices).toEqual({ "1K": 0 });
    expect(parse({ preset: "command" }).models[0]?.prices).toEqual({});
  });
});

describe("the vendor preset", () => {
  const vendor = { preset: "google" };

  it("sets the key header, the vendor's models and lenient requests", () => {
    const config = parseConfig({ vendor }, "test");
    expect(config.vendor.keyHeaders).toEqual(["x-goog-api-key"]);
    expect(config.features).toMatchObject({ strictImageConfig: false, batchImages: true });
    expect(config.models.map(({ id }) => id)).toEqual(findPreset("google")?.models.map(({ id }) => id));
    expect(config.providers).toMatchObject([{ type: "procedural" }]);
  });

  it("of OpenAI has its models, and no header besides Authorization", () => {
    const config = parseConfig({ vendor: { preset: "openai" } }, "test");
    expect(config.vendor.keyHeaders).toEqual([]);
    expect(config.models.map(({ id }) => id)).toEqual(findPreset("openai")?.models.map(({ id }) => id));
  });

  it("leaves keys as they are that the configuration has", () => {
    const own = {
      vendor: { ...vendor, keyHeaders: ["x-own-key"] },
      features: { strictImageConfig: true, batchImages: false },
      models: [{ id: "mine", prices: { "1K": 1 } }],
    };
    expect(parseConfig(own, "test")).toMatchObject(own);
    const { features } = parseConfig({ vendor, features: { batchImages: false } }, "test");
    expect(features).toMatchObject({ strictImageConfig: false, batchImages: false });
    expect(parseConfig({ vendor, ...upstreamConfig("openai") }, "test").models[0]?.id).toBe("gpt-image-2");
  });

  it("hides no wrong value", () => {
    for (const wrong of [{ vendor: { preset: "gogle" } }, { vendor, features: 5 }, { vendor, models: null }])
      expect(() => parseConfig(wrong, "test")).toThrow("test: ");
  });
});
