import { COMMON_RATIOS, EXTENDED_RATIOS, type SizeTier } from "../../contract/image-formats.ts";
import { type GroupEntry, groupHasModel, type ModelEntry } from "../models.ts";
import { mostReferences, type Offer } from "../offers.ts";

/** How many input images a real-time request may have, whatever the model. */
export const MAX_INPUT_IMAGES = 14;

/** How many input images the providers of a model take in real time, at most `MAX_INPUT_IMAGES`. */
export function inputImageLimit(offers: readonly Offer[]): number {
  const limits = offers.map(({ provider }) => mostReferences(provider));
  return limits.length === 0 ? MAX_INPUT_IMAGES : Math.min(MAX_INPUT_IMAGES, Math.max(...limits));
}

/**
 * The models that a key of this group can name in a real-time request: those that are for it, with a price.
 */
export function realtimeModelsOf(group: GroupEntry, models: readonly ModelEntry[]): ModelEntry[] {
  return models.filter((m) => m.realtime && groupHasModel(group, m.id) && pricedSizes(m).length > 0);
}

/** The sizes that a model makes and that have a price. */
export function pricedSizes(model: ModelEntry): SizeTier[] {
  return model.sizes.filter((size) => model.prices[size] !== undefined);
}

export function ratiosOf(model: ModelEntry): readonly string[] {
  return model.ratios === "extended" ? EXTENDED_RATIOS : COMMON_RATIOS;
}
