import { ITEM_OPTIONS } from "../../contract/batch-api.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import {
  type AspectRatio,
  BACKGROUNDS,
  type ImageSize,
  MOST_SEED,
  pixelAdvice,
  readPixels,
  sizeOfPixels,
} from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import type { OptionFacts } from "../../domain/models.ts";
import type { ImageOptions } from "../../domain/ports/image-provider.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import { codePointLength, hasUnstorableText, isLongerThan } from "../../kernel/text.ts";
import { fieldError } from "../http/errors.ts";

interface OptionRules {
  /** Null for an unknown model: the request is refused later, and values are not compared with it. */
  facts: OptionFacts | null;
  /** What an item asks for that says nothing. */
  defaults: ImageOptions;
  limits: Pick<Limits, "promptChars">;
  /** Each output after the first adds 1 to the seed. */
  outputCount: number;
  /** See `RequestRules`. */
  usualQuality: string | null | undefined;
}

/**
 * Checks the `options` of an item, and returns what it asks for. An option that asks for what the item has anyway counts as
 * left out, so that both requests are the same. `at` is the item, such as `items[3]`. Throws
 * `BATCH_IMAGE_INVALID_ITEMS` with the field and what the model takes.
 */
export function checkOptions(options: unknown, at: string, rules: OptionRules): ImageOptions {
  const { facts, outputCount, defaults } = rules;
  if (options === undefined || options === null) return defaults;
  if (typeof options !== "object" || Array.isArray(options))
    throw invalid(`${at}.options`, "must be an object");
  const given = options as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    if (ITEM_OPTIONS.some((known) => known === name)) continue;
    const meant = didYouMean(name, ITEM_OPTIONS);
    const advice = meant === null ? `the options are ${ITEM_OPTIONS.join(", ")}` : `did you mean ${meant}?`;
    throw invalid(`${at}.options.${name}`, `is not an option; ${advice}`);
  }
  const choose = <T extends string>(name: string, known: readonly T[] | undefined) =>
    chosen(given[name], known, (problem) => invalid(`${at}.options.${name}`, problem));
  const { size, ratio } = readShape(given, at, facts, choose);
  const { mimeType } = defaults;
  const { quality, background, negative_prompt: negativePrompt } = given;
  const names = { quality: "quality", background: "background", negativePrompt: "negative_prompt" };
  const look = checkLook({ quality, background, negativePrompt }, { ...rules, mimeType }, (option, problem) =>
    invalid(`${at}.options.${names[option]}`, problem),
  );
  return {
    size: size ?? defaults.size,
    ratio: ratio ?? defaults.ratio,
    keepsRatio: ratio === null,
    mimeType,
    quality: look.quality,
    background: look.background,
    seed: checkSeed(given.seed, `${at}.options.seed`, facts, outputCount),
    negativePrompt: look.negativePrompt,
  };
}

type Look = Pick<ImageOptions, "quality" | "background" | "negativePrompt">;

/**
 * Checks what an image is asked to look like besides its shape, whatever the fields are called. What the model does without the
 * option is null. Throws what `refused` makes of a problem.
 */
export function checkLook(
  given: Record<keyof Look, unknown>,
  {
    facts,
    mimeType,
    limits,
    usualQuality,
  }: Pick<OptionRules, "facts" | "limits" | "usualQuality"> & Pick<ImageOptions, "mimeType">,
  refused: (option: keyof Look, problem: string) => ImgbatchError,
): Look {
  const choose = <T extends string>(option: keyof Look, known: readonly T[] | undefined) =>
    chosen(given[option], known, (problem) => refused(option, problem));
  const quality = choose("quality", facts?.qualities);
  // `auto` is what the model does without the option.
  const background =
    given.background === "auto" ? null : choose("background", facts?.backgrounds ?? BACKGROUNDS);
  if (background === "transparent" && mimeType === "image/jpeg")
    throw refused("background", "a JPEG has no transparency; ask for image/png or image/webp");
  const negativePrompt = checkNegativePrompt(given.negativePrompt, facts, limits, (problem) =>
    refused("negativePrompt", problem),
  );
  return { quality: quality === usualQuality ? null : quality, background, negativePrompt };
}

/** Returns the value if it is one of the known ones; without these, any. */
function chosen<T extends string>(
  given: unknown,
  known: readonly T[] | undefined,
  refused: (problem: string) => ImgbatchError,
): T | null {
  const value = given ?? null;
  const found = known === undefined ? (value as T | null) : known.find((each) => each === value);
  if (value === null || found !== undefined) return found ?? null;
  const takes = known?.length === 0 ? "the model takes none" : `the model takes ${known?.join(", ")}`;
  throw refused(`${shown(value)} is not possible; ${takes}`);
}

/** Reads size and ratio. Pixels that a size and a ratio of the model stand for are these two. */
function readShape(
  given: Record<string, unknown>,
  at: string,
  facts: OptionFacts | null,
  choose: <T extends string>(name: string, known: readonly T[] | undefined) => T | null,
): { size: ImageSize | null; ratio: AspectRatio | null } {
  const { image_size: asked, aspect_ratio: asRatio } = given;
  const pixels = typeof asked === "string" ? readPixels(asked) : null;
  if (pixels === null || facts === null)
    return { size: choose("image_size", facts?.tiers), ratio: choose("aspect_ratio", facts?.ratios) };
  const found = sizeOfPixels(facts, pixels);
  if (found === null) {
    const takes = pixelAdvice(facts, pixels);
    throw invalid(`${at}.options.image_size`, `${shown(asked)} is not possible; the model takes ${takes}`);
  }
  if (asRatio != null && asRatio !== "" && asRatio !== found.ratio)
    throw invalid(
      `${at}.options.aspect_ratio`,
      `${shown(asRatio)} contradicts the size ${shown(asked)}; leave one of them out`,
    );
  return found;
}

function checkSeed(seed: unknown, at: string, facts: OptionFacts | null, outputCount: number): number | null {
  if (seed === undefined || seed === null) return null;
  if (facts?.seed === false) throw invalid(at, "the model takes none");
  const most = (facts?.maxSeed ?? MOST_SEED) - (outputCount - 1);
  if (typeof seed === "number" && Number.isInteger(seed) && seed >= 0 && seed <= most) return seed;
  const why = outputCount === 1 ? "" : `, so that the last of ${outputCount} outputs has one, too`;
  throw invalid(at, `must be a whole number from 0 to ${most}${why}`);
}

function checkNegativePrompt(
  text: unknown,
  facts: OptionRules["facts"],
  { promptChars }: OptionRules["limits"],
  refused: (problem: string) => ImgbatchError,
): string | null {
  if (text === undefined || text === null || text === "") return null;
  if (typeof text !== "string") throw refused("must be a text");
  if (facts?.negativePrompt === false) throw refused("the model takes none; say it in the prompt");
  if (hasUnstorableText(text)) throw refused("must not hold NUL or half of a surrogate pair");
  if (isLongerThan(text, promptChars))
    throw refused(`has ${codePointLength(text)} characters; at most ${promptChars} are allowed`);
  return text.trim() === "" ? null : text.trim();
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("BATCH_IMAGE_INVALID_ITEMS", param, problem);
}
