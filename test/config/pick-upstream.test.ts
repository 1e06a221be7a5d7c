import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config/load.ts";
import { firstBatchModel } from "../../src/config/schema.ts";
import { tempDir } from "../support/temp-dir.ts";

let cwd: string;
beforeEach(async () => {
  cwd = await tempDir();
});

/** The configuration behind `--upstream`, with a file of these providers. */
function picked(upstream: string, providers: readonly object[], more: object = {}) {
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ providers, ...more }));
  return loadConfig({ cwd, file: "imgbatch.config.json", upstream });
}

const proxy = { preset: "google", baseUrl: "https://proxy.example.com", concurrency: 3 };
const own = { name: "lab", type: "openai", baseUrl: "https://lab.example.com/v1" };

describe("--upstream with providers in the configuration", () => {
  it("[CONF-8] picks one of them, with its address, its limits and the limits of the file", () => {
    const { providers, limits } = picked("google", [own, proxy], { limits: { itemsPerBatch: 7 } });
    expect(providers).toEqual([expect.objectContaining({ ...proxy, name: "google" })]);
    expect(limits.itemsPerBatch).toBe(7);
  });

  it("[CONF-8] keeps the models and prices of the file", () => {
    const models = [{ id: "gemini-nano-banana-2.1", prices: { "1K": 0.5 } }];
    expect(picked("google", [proxy, own], { models }).models).toMatchObject(models);
  });

  it.each([
    ["lab", own],
    ["google", proxy],
    // Of two providers of a preset the first.
    ["native", proxy],
    ["openai", own],
  ])("[CONF-8] finds %s by name, else by preset, else by type", (name, { baseUrl }) => {
    const second = { preset: "google", name: "second" };
    expect(picked(name, [own, proxy, second]).providers).toMatchObject([{ baseUrl }]);
    expect(picked("second", [own, proxy, second]).providers).toMatchObject([{ name: "second" }]);
  });

  it("[CONF-8] takes the models of the preset that it picks, also after one of another vendor", () => {
    const config = picked("openai", [{ preset: "google" }, { preset: "openai" }]);
    expect(firstBatchModel(config)).toMatch(/^gpt-image/);
    expect(firstBatchModel(picked("google", [{ preset: "google" }, own]))).toMatch(/^gemini/);
    // One without a preset serves what it would serve beside the others, at the same prices.
    const { models, groups } = picked("lab", [{ preset: "google" }, own]);
    expect(models[0]?.id).toMatch(/^gemini/);
    expect(groups[0]?.batchDiscount).toBe(1);
  });

  it("[CONF-8] is wrong usage for a name that the file lacks, and names those that it has", () => {
    expect(() => picked("openrouter", [own, proxy])).toThrow(
      expect.objectContaining({
        code: "USAGE",
        message: expect.stringContaining("has lab, google"),
        advice: expect.stringContaining("--config none"),
      }),
    );
    expect(() => picked("lap", [own, proxy])).toThrow("Did you mean lab?");
    expect(loadConfig({ cwd, file: "none", upstream: "openrouter" }).providers).toMatchObject([
      { name: "openrouter" },
    ]);
    expect(() => loadConfig({ cwd, file: "none", upstream: "opnrouter" })).toThrow(
      "Did you mean openrouter?",
    );
  });

  it("[CONF-8] needs consent to what it picks, where only the working directory names the file", () => {
    picked("google", [own, proxy]);
    expect(() => loadConfig({ cwd, upstream: "google" })).toThrow(
      expect.objectContaining({ code: "CONSENT_REQUIRED" }),
    );
  });
});

describe("--unit-cost", () => {
  it("prices a model of a provider without a preset", () => {
    writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers: [own] }));
    const priced = { id: "my-model", usd: 0.04 };
    const config = loadConfig({ cwd, file: "c.json", priced });
    expect(config.models).toContainEqual(expect.objectContaining({ id: "my-model", prices: { "1K": 0.04 } }));
    // A price of the file wins.
    const models = [{ id: "my-model", prices: { "1K": 0.09 } }, { id: "other" }];
    writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers: [own], models }));
    expect(loadConfig({ cwd, file: "c.json", priced }).models[0]?.prices).toEqual({ "1K": 0.09 });
    const other = { id: "other", usd: 0.01 };
    expect(loadConfig({ cwd, file: "c.json", priced: other }).models[1]?.prices).toEqual({ "1K": 0.01 });
  });

  it("adds no model to drawings", () => {
    const priced = { id: "gpt-imgae", usd: 0.04 };
    expect(loadConfig({ cwd, file: "none", priced }).models.map(({ id }) => id)).not.toContain("gpt-imgae");
  });
});
