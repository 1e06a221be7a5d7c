import { describe, expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { GOOGLE_MODELS, PRESETS, UPSTREAM_NAMES, upstreamConfig } from "../../src/config/presets.ts";
import type { UpstreamEntry } from "../../src/contract/provider-entries.ts";
import { priceBatchImage } from "../../src/domain/billing/payer.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { asItemProvider } from "../../src/providers/upstream/item-provider.ts";

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

describe.each(UPSTREAM_NAMES)("the preset %s", (name) => {
  const config = parseConfig(upstreamConfig(name), name);
  const entry = config.providers[0] as UpstreamEntry;

  it("is a whole configuration, whose one provider serves all its models", () => {
    const { keyVariable } = PRESETS[name];
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
    const share = name.endsWith("-batch") ? 0.5 : 1;
    for (const model of config.models) {
      const usd = model.prices["1K"] ?? Number.NaN;
      const price = group === undefined ? null : priceBatchImage(model, group, entry.rateMultiplier);
      expect(price).toMatchObject({
        imageMicroUsd: Math.round(usd * share * 1e6),
        holdMicroUsd: Math.round(usd * share * 1e6),
      });
      const isPriced = !FREE.includes(name) && name !== "command";
      expect(usd > 0).toBe(isPriced);
      for (const size of model.sizes) expect(model.prices[size]).toBeDefined();
    }
    const { priceSource, keyVariable } = PRESETS[name];
    expect(priceSource).toMatch(keyVariable === null ? /./ : /^(Source: |Check this price at ).*20\d\d-\d\d/);
  });

  it("names the variable of its key, and is disabled without it", () => {
    const { keyVariable } = PRESETS[name];
    const { disabled } = providerOf(entry).upstream ?? {};
    expect(disabled).toBe(keyVariable === null ? null : `the environment variable ${keyVariable} is not set`);
  });
});

describe("the vendor preset", () => {
  const vendor = { preset: "google" };

  it("sets the key header, the vendor's models and lenient requests", () => {
    const config = parseConfig({ vendor }, "test");
    expect(config.vendor.keyHeaders).toEqual(["x-goog-api-key"]);
    expect(config.features).toMatchObject({ strictImageConfig: false, batchImages: true });
    expect(config.models.map(({ id }) => id)).toEqual(GOOGLE_MODELS.map(({ id }) => id));
    expect(config.providers).toMatchObject([{ type: "procedural" }]);
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
