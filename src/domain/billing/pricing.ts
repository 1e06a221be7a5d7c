import type { SizeTier } from "../../contract/images/image-sizes.ts";
import { multiplyToMicros } from "../../kernel/money.ts";
import type { GroupEntry, ModelEntry } from "../models.ts";
import type { PriceSnapshot } from "../records.ts";

/**
 * Returns the price of one image of a batch and the amount that is held for it. One image's amounts are rounded to a micro-dollar
 * (half up) once; everything else multiplies them. Null when the model has no 1K price.
 */
export function priceBatchImage(
  model: ModelEntry,
  group: GroupEntry,
  providerMultiplier: number,
): PriceSnapshot | null {
  const modelPriceUsd = model.prices["1K"];
  if (modelPriceUsd === undefined) return null;
  const unit = [modelPriceUsd, group.rateMultiplier, providerMultiplier];
  const holdMultiplier = Math.max(group.holdMultiplier, group.batchDiscount);
  return {
    imageMicroUsd: multiplyToMicros([...unit, group.batchDiscount]),
    holdMicroUsd: multiplyToMicros([...unit, holdMultiplier]),
    basis: {
      modelPriceUsd,
      groupMultiplier: group.rateMultiplier,
      providerMultiplier,
      batchDiscount: group.batchDiscount,
      holdMultiplier,
    },
  };
}

/**
 * Returns the price of one real-time image of this size, in micro-dollars: without discount, rounded once. Null when
 * the model has no price at this size.
 */
export function priceRealtimeImage(
  model: ModelEntry,
  size: SizeTier,
  group: GroupEntry,
  providerMultiplier: number,
): number | null {
  const price = model.prices[size];
  return price === undefined ? null : multiplyToMicros([price, group.rateMultiplier, providerMultiplier]);
}
