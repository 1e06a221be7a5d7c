import type { GroupEntry, ModelEntry } from "../../src/domain/models.ts";

/** A model as the configuration has it: an image of 1K costs 10 micro-dollars. */
export const modelEntry = {
  id: "m",
  family: "native",
  batch: true,
  realtime: true,
  ratios: "common",
  sizes: ["1K"],
  prices: { "1K": 0.000_01 },
} as const satisfies ModelEntry;

/** A group that may use each model, at the usual prices. */
export const groupEntry = {
  name: "g",
  platform: "native",
  allowBatchImages: true,
  models: ["*"],
  rateMultiplier: 1,
  batchDiscount: 0.5,
  holdMultiplier: 0.6,
} as const satisfies GroupEntry;

/** The facts that the record of a real-time image keeps, but for those of its request. */
export const imageFacts = {
  imageIndex: 0,
  model: "m",
  executedModel: "m",
  provider: "p",
  size: "1K",
  ratio: "1:1",
  mimeType: "image/png",
  widthPx: 1,
  heightPx: 1,
  sizeBytes: 1,
} as const;
