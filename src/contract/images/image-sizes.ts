/** Size tiers: a tier and a ratio together give the pixels (`imageSizePx`). */
export const SIZE_TIERS = ["512", "1K", "2K", "4K"] as const;
export type SizeTier = (typeof SIZE_TIERS)[number];

export const COMMON_RATIOS = [
  "1:1",
  "2:3",
  "3:2",
  "3:4",
  "4:3",
  "4:5",
  "5:4",
  "9:16",
  "16:9",
  "21:9",
] as const;
export const EXTENDED_RATIOS = [...COMMON_RATIOS, "1:4", "1:8", "4:1", "8:1"] as const;
export type AspectRatio = (typeof EXTENDED_RATIOS)[number];
export type RatioSet = "common" | "extended";

/** The ratio of a batch image: batches cannot ask for one. */
export const DEFAULT_RATIO: AspectRatio = "1:1";

export interface SizePx {
  widthPx: number;
  heightPx: number;
}

/** Width and height at 1K; 512, 2K and 4K are exactly half, twice and four times these. */
const SIZES_1K: Record<AspectRatio, readonly [number, number]> = {
  "1:1": [1024, 1024],
  "2:3": [848, 1264],
  "3:2": [1264, 848],
  "3:4": [896, 1200],
  "4:3": [1200, 896],
  "4:5": [928, 1152],
  "5:4": [1152, 928],
  "9:16": [768, 1376],
  "16:9": [1376, 768],
  "21:9": [1584, 672],
  "1:4": [512, 2048],
  "4:1": [2048, 512],
  "1:8": [384, 3072],
  "8:1": [3072, 384],
};
/** The enlargement of each tier, relative to the width and height at 1K. */
export const TIER_FACTORS: Record<SizeTier, number> = { "512": 0.5, "1K": 1, "2K": 2, "4K": 4 };

/** The pixels of an image of this tier and ratio. */
export function imageSizePx(tier: SizeTier, ratio: AspectRatio): SizePx {
  const [width, height] = SIZES_1K[ratio];
  const factor = TIER_FACTORS[tier];
  return { widthPx: width * factor, heightPx: height * factor };
}
