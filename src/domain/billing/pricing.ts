import type { SizeTier } from "../../contract/image-formats.ts";
import { multiplyToMicros } from "../../kernel/money.ts";
import type { GroupEntry, ModelEntry } from "../models.ts";
import type { PriceSnapshot } from "../records.ts";

/**
 * Returns the price of one image of a batch and the amount that is held for it. One image's amounts are rounded to a micro-dollar
 * (half up) once; everything else multiplies or adds them. Null when the model has no price at this size.
 */
export function priceBatchImage(
  model: ModelEntry,
  group: GroupEntry,
  providerMultiplier: number,
  size: SizeTier = "1K",
): PriceSnapshot | null {
  const modelPriceUsd = model.prices[size];
  if (modelPriceUsd === undefined) return null;
  const { rateMultiplier: groupMultiplier, batchDiscount } = group;
  const holdMultiplier = Math.max(group.holdMultiplier, batchDiscount);
  return priceOf({ modelPriceUsd, groupMultiplier, providerMultiplier, batchDiscount, holdMultiplier });
}

/** Returns the amounts that these numbers make. An item of another size has another `modelPriceUsd` than its batch. */
export function priceOf(basis: PriceSnapshot["basis"]): PriceSnapshot {
  const { modelPriceUsd, groupMultiplier, providerMultiplier, batchDiscount, holdMultiplier } = basis;
  const unit = [modelPriceUsd, groupMultiplier, providerMultiplier];
  return {
    imageMicroUsd: multiplyToMicros([...unit, batchDiscount]),
    holdMicroUsd: multiplyToMicros([...unit, holdMultiplier]),
    basis,
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
