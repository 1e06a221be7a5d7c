import { type BatchModel, readAnnouncedPixels } from "../../contract/batch-api.ts";
import { tierOf } from "../../contract/image-formats.ts";
import { numberToMicros } from "../../kernel/money.ts";
import type { ModelTakes, Options } from "../../prompts/options.ts";

/** The values that a model takes for each option of a line. */
export function takesOf({ id, options }: BatchModel): ModelTakes {
  const { image_size: size, pixels, default_quality: _, max_seed: maxSeed, ...others } = options;
  return { id, size, pixels: readAnnouncedPixels(pixels), maxSeed, ...others };
}

/** What one image costs with its options, and what is held for it, in micro-dollars. */
export function imagePrice(
  { options, prices, pricing }: BatchModel,
  { size = "1K", quality = options.default_quality ?? undefined }: Pick<Options, "size" | "quality">,
): { cost: number; hold: number } {
  const tiers = prices.map(({ image_size }) => image_size);
  const ofSize = prices.filter(({ image_size }) => image_size === tierOf(size, tiers));
  const found = ofSize.find((price) => price.quality === (quality ?? null)) ?? ofSize[0] ?? pricing;
  return { cost: numberToMicros(found.batch_image), hold: numberToMicros(found.batch_hold) };
}
