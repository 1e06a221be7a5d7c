import { expect, it } from "vitest";
import { usageOf } from "../../../src/server/native-api/generate.ts";

const usage = (facts: Partial<Parameters<typeof usageOf>[0]>) =>
  usageOf({
    model: "vendorx-3.1-flash-image",
    prompt: "a fox",
    inputImages: 0,
    size: "1K",
    outputImages: 1,
    ...facts,
  });

it.each([
  ["vendorx-3.1-flash-image", [1120, 1680, 2520]],
  ["vendorx-3-pro-image-preview", [1120, 1120, 2000]],
  ["vendorx-3.1-flash-lite-image", [1120, 1680, 2520]],
])("an image of %s counts by its size", (model, counts) => {
  const sizes = ["1K", "2K", "4K"] as const;
  expect(sizes.map((size) => usage({ model, size }).candidatesTokenCount)).toEqual(counts);
});

it("text counts a token for four bytes, input images as their family says, and the total is the sum", () => {
  expect(usage({ prompt: "狐狸 in snow", inputImages: 2 })).toEqual({
    promptTokenCount: 4 + 516,
    candidatesTokenCount: 1120,
    totalTokenCount: 4 + 516 + 1120,
    promptTokensDetails: [
      { modality: "TEXT", tokenCount: 4 },
      { modality: "IMAGE", tokenCount: 516 },
    ],
    candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1120 }],
  });
  expect(usage({ model: "vendorx-3-pro-image", inputImages: 1 }).promptTokenCount).toBe(2 + 560);
});

it("no image counts nothing", () => {
  const none = usage({ outputImages: 0 });
  expect(none).toMatchObject({ candidatesTokenCount: 0, totalTokenCount: 2 });
  expect(none).not.toHaveProperty("candidatesTokensDetails");
});
