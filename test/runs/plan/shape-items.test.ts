import { expect, it } from "vitest";
import { RATIOS } from "../../../src/contract/image-formats.ts";
import type { RunModels } from "../../../src/runs/plan/choose-model.ts";
import type { PromptItem } from "../../../src/runs/plan/prompt-files.ts";
import { shapeItems } from "../../../src/runs/plan/shape-items.ts";

/** A model that is asked for a ratio and a size, with these prices. */
function modelsWith(prices: Readonly<Record<string, number>>): RunModels {
  const options = { aspectRatios: RATIOS.common, sizes: Object.keys(prices), pixels: null };
  const priceOf = ({ size = "1K" }) => ({ imageMicroUsd: prices[size] ?? 0, holdMicroUsd: 0 });
  const model = { id: "m", options, priceOf };
  return { first: model, of: () => model } as unknown as RunModels;
}

function itemOf(pixels: string, more: Partial<PromptItem> = {}): PromptItem {
  const files = { from: "/tmp", wanted: [{ path: "a.webp", pixels, format: "webp" as const }] };
  return {
    files,
    references: [],
    prompt: "",
    customId: null,
    outputCount: 1,
    fileLine: { file: "p", line: 1 },
    ...more,
  } as unknown as PromptItem;
}

async function shapeOf(item: PromptItem, prices: Readonly<Record<string, number>>) {
  const notes: string[] = [];
  const how = { isStrict: false, note: (text: string) => void notes.push(text) };
  const [shaped] = await shapeItems(null, [item], modelsWith(prices), how);
  return [shaped?.size ?? null, shaped?.aspect_ratio ?? null, notes.length];
}

it("[DERIVE-8] of the ratios and sizes of a model, the cheapest that covers the file is asked for, then the least cut, then the smallest", async () => {
  const rising = { "512": 40, "1K": 70, "2K": 100, "4K": 150 };
  const level = { "1K": 134, "2K": 134, "4K": 240 };
  expect(await shapeOf(itemOf("1200x630"), rising)).toEqual(["1K", "16:9", 0]);
  expect(await shapeOf(itemOf("1200x630"), level)).toEqual(["1K", "16:9", 0]);
  expect(await shapeOf(itemOf("64x64"), rising)).toEqual(["512", "1:1", 0]);
  expect(await shapeOf(itemOf("1000x1000"), level)).toEqual([null, null, 0]);
  expect(await shapeOf(itemOf("2000x1000"), rising)).toEqual(["2K", "16:9", 0]);
  expect(await shapeOf(itemOf("1080x1920"), rising)).toEqual(["2K", "9:16", 0]);
  expect(await shapeOf(itemOf("9000x9000"), rising)).toEqual(["4K", "1:1", 1]);
  expect(await shapeOf(itemOf("x2000"), rising)).toEqual(["2K", "1:1", 0]);
});

it("[DERIVE-8] a ratio that a line names stays, and so does a size", async () => {
  const level = { "1K": 134, "2K": 134, "4K": 240 };
  expect(await shapeOf(itemOf("1200x630", { aspect_ratio: "1:1" }), level)).toEqual([null, "1:1", 0]);
  expect(await shapeOf(itemOf("1200x630", { size: "2K" }), level)).toEqual(["2K", "16:9", 0]);
  expect(await shapeOf(itemOf("1200x630", { size: "1024x1024" }), level)).toEqual(["1024x1024", null, 0]);
});
