import {
  type AspectRatio,
  COMMON_RATIOS,
  EXTENDED_RATIOS,
  imageSizePx,
  type RatioSet,
  type SizePx,
  type SizeTier,
} from "../../contract/image-formats.ts";
import { type GroupEntry, groupHasModel, type ModelEntry } from "../models.ts";
import { mostReferences, type Offer } from "../offers.ts";

/** The tier whose pictures of this ratio are nearest in area: twice as large counts as far as half as large. */
export function nearestTier(asked: SizePx, ratio: AspectRatio, tiers: readonly SizeTier[]): SizeTier {
  const distance = (tier: SizeTier) => Math.abs(areaOf(asked) - areaOf(imageSizePx(tier, ratio)));
  return tiers.reduce((best, tier) => (distance(tier) < distance(best) ? tier : best));
}

const areaOf = ({ widthPx, heightPx }: SizePx) => Math.log(widthPx * heightPx);

/**
 * The ratio whose pictures are nearest to the shape of an image: twice as wide counts as far as twice as high.
 */
export function nearestRatio(image: SizePx, set: RatioSet): AspectRatio {
  const ratios: readonly AspectRatio[] = set === "extended" ? EXTENDED_RATIOS : COMMON_RATIOS;
  const shape = shapeOf(image);
  const distance = (ratio: AspectRatio) => Math.abs(shape - shapeOf(imageSizePx("1K", ratio)));
  return ratios.reduce((best, ratio) => (distance(ratio) < distance(best) ? ratio : best));
}

const shapeOf = ({ widthPx, heightPx }: SizePx) => Math.log(widthPx / heightPx);

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
