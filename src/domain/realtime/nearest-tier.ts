import { type AspectRatio, imageSizePx, type SizePx, type SizeTier } from "../../contract/image-formats.ts";

/** The tier whose pictures of this ratio are nearest in area: twice as large counts as far as half as large. */
export function nearestTier(asked: SizePx, ratio: AspectRatio, tiers: readonly SizeTier[]): SizeTier {
  const distance = (tier: SizeTier) => Math.abs(areaOf(asked) - areaOf(imageSizePx(tier, ratio)));
  return tiers.reduce((best, tier) => (distance(tier) < distance(best) ? tier : best));
}

const areaOf = ({ widthPx, heightPx }: SizePx) => Math.log(widthPx * heightPx);
