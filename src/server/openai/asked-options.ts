import { type ImageMimeType, type ImageSize, MOST_SEED } from "../../contract/image-formats.ts";
import type { OpenaiBody } from "../../contract/openai-api.ts";
import { imagePriceUsd, type ModelEntry, type OptionFacts } from "../../domain/models.ts";
import type { AskedOptions } from "../../domain/ports/image-provider.ts";
import { invalidArgument } from "../http/errors.ts";

/** OpenAI's words of all times, in their order: those of one place mean the same. */
const SCALE = [["low"], ["medium", "standard"], ["high", "hd"], ["xhigh"], ["max"]] as const;

const placeOf = (word: string) => SCALE.findIndex((words) => words.some((each) => each === word));

interface Wanted {
  model: ModelEntry;
  facts: OptionFacts;
  size: ImageSize;
  mimeType: ImageMimeType;
}

/**
 * Returns what a request asks of its model: what the model lacks becomes its nearest. Undefined: nothing. Throws
 * `REALTIME_INVALID_ARGUMENT` for an unknown quality, for a transparent JPEG, and for a seed that the model does not take.
 */
export function readOptions(
  { quality: word, background: behind, seed, n }: OpenaiBody<"GenerateImages">,
  { model, facts, size, mimeType }: Wanted,
): AskedOptions | undefined {
  if (seed != null && !facts.seed) throw invalidArgument("seed", "the model takes none");
  // Behind the largest seed of all, the next one is 0. A model with a bound of its own would refuse the last image.
  const mostSeed = facts.maxSeed === MOST_SEED ? MOST_SEED : facts.maxSeed - ((n ?? 1) - 1);
  if (seed != null && seed > mostSeed)
    throw invalidArgument("seed", `must be a whole number from 0 to ${mostSeed}`);
  const priced = facts.qualities.filter((each) => imagePriceUsd(model, size, each) !== undefined);
  const quality = word == null || word.toLowerCase() === "auto" ? null : nearestQuality(word, priced);
  if (behind === "transparent" && mimeType === "image/jpeg")
    throw invalidArgument("background", "a JPEG has no transparency: ask for png or webp");
  // A model that makes no transparent picture makes an opaque one.
  const wanted = behind ?? "auto";
  const possible = [wanted, "opaque" as const].find((each) => facts.backgrounds.includes(each)) ?? null;
  const background = wanted === "auto" ? null : possible;
  if (quality === null && background === null && seed == null) return undefined;
  return { quality, background, seed: seed ?? null, negativePrompt: null };
}

/** Of two that are equally near, the lower one. Null for a model without qualities, or with words of its own alone. */
function nearestQuality(word: string, known: readonly string[]): string | null {
  const asked = word.toLowerCase();
  const own = known.find((each) => each.toLowerCase() === asked);
  if (own !== undefined) return own;
  const wanted = placeOf(asked);
  if (wanted < 0) {
    const words = new Set(["auto", ...SCALE.flat(), ...known]);
    throw invalidArgument("quality", `must be one of ${[...words].join(", ")}`);
  }
  const near = known
    .map((each) => ({ each, place: placeOf(each) }))
    .filter(({ place }) => place >= 0)
    .sort((a, b) => Math.abs(a.place - wanted) - Math.abs(b.place - wanted) || a.place - b.place);
  return near[0]?.each ?? null;
}
