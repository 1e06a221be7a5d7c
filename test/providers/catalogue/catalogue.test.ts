import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { modelFacts, PRESETS, priceOf, UPSTREAM_NAMES } from "../../../src/providers/catalogue/catalogue.ts";
import { vendorSchema } from "../../../src/providers/catalogue/schema.ts";

const SRC = resolve(import.meta.dirname, "../../../src");
const FOLDER = join(SRC, "providers/catalogue");
const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
const read = (name: string) => JSON.parse(readFileSync(join(FOLDER, name), "utf8"));

describe("the catalogue", () => {
  it.each(files)("%s follows the schema, and its presets can be chosen", (name) => {
    expect(vendorSchema.safeParse(read(name)).error?.issues ?? []).toEqual([]);
    expect(UPSTREAM_NAMES).toEqual(expect.arrayContaining(Object.keys(read(name).presets)));
  });

  it("no line of code names a model of a vendor", () => {
    const ids = PRESETS.flatMap(({ models }) => models.map(({ id }) => id)).filter((id) => /\d/.test(id));
    const code = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((name) =>
      /\.tsx?$/.test(name),
    );
    const naming = code.filter((name) => {
      const text = readFileSync(join(SRC, name), "utf8").replaceAll(/^\s*(\/\/|\*|\/\*\*).*$/gm, "");
      return ids.some((id) => text.includes(id));
    });
    expect(naming).toEqual([]);
  });

  const google = read("google.json");
  const [model] = google.models;
  it.each<[string, object]>([
    ["an unknown field", { ...google, modells: [] }],
    ["two models of one id", { ...google, models: [model, model] }],
    ["prices without a day", { ...google, models: [{ ...model, asOf: undefined }] }],
    ["a price of a size that it does not make", { ...google, models: [{ ...model, sizes: ["1K"] }] }],
    [
      "a quality without prices of its own",
      { ...google, models: [{ ...model, qualities: ["low"], defaultQuality: "low" }] },
    ],
    ["a default that is no quality", { ...google, models: [{ ...model, defaultQuality: "low" }] }],
    ["a successor that is not there", { ...google, models: [{ ...model, successor: "none" }] }],
    ["a share above 1", { ...google, models: [{ ...model, jobPrice: 1.5 }] }],
  ])("the schema refuses %s", (_what, value) => {
    expect(vendorSchema.safeParse(value).success).toBe(false);
  });
});

describe("a model of the catalogue", () => {
  const facts = (preset: string | null, id: string) => modelFacts(preset, id) ?? expect.fail();

  it("is found by our id and by the vendor's; without a preset by the vendor's alone", () => {
    const ours = facts("openrouter", "seedream-4.5");
    expect(facts("openrouter", "bytedance-seed/seedream-4.5")).toBe(ours);
    expect(facts(null, "bytedance-seed/seedream-4.5")).toBe(ours);
    expect(modelFacts(null, "seedream-4.5")).toBe(null);
    expect(modelFacts("google", "gpt-image-2")).toBe(null);
    expect(facts(null, "gpt-image-2").formats).toEqual(["png", "jpeg", "webp"]);
  });

  it("has a price by size, or by quality and size; auto may cost as much as the dearest", () => {
    const banana = facts("google", "gemini-nano-banana-2.1");
    expect([priceOf(banana), priceOf(banana, { size: "4K" }), priceOf(banana, { size: "512" })]).toEqual([
      0.0336,
      0.113,
      null,
    ]);
    const gpt = facts("openai", "gpt-image-2");
    expect([undefined, "low", "auto", "max"].map((quality) => priceOf(gpt, { quality }))).toEqual([
      0.053,
      0.006,
      0.211,
      null,
    ]);
    expect(priceOf(gpt, { size: "4K", quality: "auto" })).toBe(0.8);
    expect(priceOf(gpt, { size: "512", quality: "auto" })).toBe(null);
    expect(priceOf(facts("openai", "gpt-image-2.6-flare"))).toBe(null);
  });
});
