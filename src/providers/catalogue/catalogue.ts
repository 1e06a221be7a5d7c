import type { PixelSizes, SizeTier } from "../../contract/image-formats.ts";
import type { ProviderEntry, UpstreamEntry } from "../../contract/provider-entries.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import bfl from "./bfl.json" with { type: "json" };
import command from "./command.json" with { type: "json" };
import google from "./google.json" with { type: "json" };
import localai from "./localai.json" with { type: "json" };
import ollama from "./ollama.json" with { type: "json" };
import openai from "./openai.json" with { type: "json" };
import openrouter from "./openrouter.json" with { type: "json" };
import replicate from "./replicate.json" with { type: "json" };
import type { CatalogueModel, Vendor } from "./schema.ts";
import sdapi from "./sdapi.json" with { type: "json" };
import together from "./together.json" with { type: "json" };
import xai from "./xai.json" with { type: "json" };

/** An upstream that can be chosen by its name alone. */
export interface Preset {
  name: string;
  /** For people, such as "the Gemini API". */
  title: string;
  /** A step that a person does once, besides setting the key; null when there is none. */
  preparation: string | null;
  /** The environment variable that holds the key; null when there is none. */
  keyVariable: string | null;
  /** Its entry of `providers`, as far as it differs from the defaults of the type. */
  provider: {
    type: ProviderEntry["type"];
    baseUrl?: string;
    origins?: readonly string[];
    free?: boolean;
  } & Readonly<Record<string, unknown>>;
  isOfJobs: boolean;
  /** The first is the default. */
  models: readonly CatalogueModel[];
  /** How the vendor's list is read, and what it must say that a model can do. Left out: not known. */
  list?: NonNullable<Vendor["list"]> & { needs?: string | undefined };
}

// A test checks the files against the schema.
const VENDORS = [
  google,
  openai,
  openrouter,
  together,
  xai,
  replicate,
  bfl,
  localai,
  ollama,
  sdapi,
  command,
] as unknown as readonly Vendor[];

/** Whether providers of this type make images as batch jobs of their upstream, and not with a request for each image. */
export function isJobType(type: string): boolean {
  return type.endsWith("-batch");
}

export const PRESETS: readonly Preset[] = VENDORS.flatMap(({ presets, models, list }) =>
  Object.entries(presets).map(([name, { title, preparation = null, needs, provider }]) => ({
    name,
    title,
    preparation,
    models,
    keyVariable: "apiKeyEnv" in provider ? (provider.apiKeyEnv ?? null) : null,
    provider: { ...provider, ...upstreamIds(models) } as Preset["provider"],
    isOfJobs: isJobType(provider.type),
    ...(list && { list: { ...list, needs } }),
  })),
);
export const UPSTREAM_NAMES: readonly string[] = PRESETS.map(({ name }) => name);

/** What people call an upstream that has another name here. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  gemini: "google",
  imagen: "google",
  "nano-banana": "google",
  gpt: "openai",
  "gpt-image": "openai",
  chatgpt: "openai",
  dalle: "openai",
  "dall-e": "openai",
  grok: "xai",
  flux: "bfl",
  "black-forest-labs": "bfl",
  togetherai: "together",
  automatic1111: "sdapi",
  a1111: "sdapi",
};

/** Returns the upstream that was probably meant by a name that none has; null when there is none. */
export function meantUpstream(name: string): string | null {
  const known = name.toLowerCase();
  return (Object.hasOwn(OTHER_NAMES, known) && OTHER_NAMES[known]) || didYouMean(name, UPSTREAM_NAMES);
}

/** The setting `models` of an entry whose upstream has other ids. Models that are not in it are not served. */
function upstreamIds(models: readonly CatalogueModel[]): { models?: Record<string, string> } {
  if (models.every(({ upstreamId }) => upstreamId === undefined)) return {};
  return { models: Object.fromEntries(models.map(({ id, upstreamId = id }) => [id, upstreamId])) };
}

export function findPreset(name: unknown): Preset | undefined {
  return PRESETS.find((preset) => preset.name === name);
}

/** Returns the preset that an entry of the configuration names, else the one of the same type and address. */
export function presetOf(entry: ProviderEntry): Preset | undefined {
  if (entry.type === "procedural" || entry.type === "replay") return undefined;
  if (entry.preset !== null) return findPreset(entry.preset);
  return PRESETS.find(
    ({ provider }) =>
      provider.type === entry.type && "baseUrl" in entry && provider.baseUrl === entry.baseUrl,
  );
}

/**
 * Returns type and origin of the system behind a provider, such as `openai https://images.example.com`. Null where a preset
 * has that type and origin, and for what has no origin: drawings, recordings and programs.
 */
export function ownOrigin({ type, address }: { type: string; address: string | null }): string | null {
  const origin = originOf(address ?? "");
  const isPreset = PRESETS.some(
    ({ provider }) => provider.type === type && originOf(provider.baseUrl ?? "") === origin,
  );
  return origin === null || isPreset ? null : `${type} ${origin}`;
}

const originOf = (url: string) => (/^https?:/.test(url) && URL.canParse(url) ? new URL(url).origin : null);

/**
 * Returns what is known of a model, by our id or by the vendor's; null when nothing is. Without a preset, all vendors are
 * searched for the vendor's id.
 */
export function modelFacts(preset: string | null, id: string): CatalogueModel | null {
  const models = preset === null ? VENDORS.flatMap((each) => each.models) : findPreset(preset)?.models;
  const isIt = ({ id: ours, upstreamId = ours }: CatalogueModel) =>
    upstreamId === id || (preset !== null && ours === id);
  return models?.find(isIt) ?? null;
}

/**
 * Returns the pixels that models of an entry can be asked for: what the catalogue knows of the model, else the entry's
 * `sizes`, else any.
 */
export function pixelsOf(entry: UpstreamEntry): (model: string) => PixelSizes | "any" {
  const preset = presetOf(entry)?.name ?? null;
  return (model) => modelFacts(preset, model)?.pixels ?? entry.sizes ?? "any";
}

/**
 * Returns the pixels that a vendor's model of this name takes; null when they are not known. Of a model that has ended,
 * clients still ask for the name, but have moved on to sizes of its successors.
 */
export function pixelsNamed(name: string): { pixels: PixelSizes; hasEnded: boolean } | null {
  const own = modelFacts(null, name)?.pixels;
  if (own !== undefined) return { pixels: own, hasEnded: false };
  const ended = VENDORS.map(({ gone }) => gone?.[name]).find((pixels) => pixels !== undefined);
  return ended === undefined ? null : { pixels: ended, hasEnded: true };
}

/**
 * Returns the price of an image in US dollars; null when it is not known. Default: 1K in the model's default quality. The
 * quality `auto` may cost as much as the dearest.
 */
export function priceOf(
  { prices, qualities, defaultQuality = "" }: CatalogueModel,
  { size = "1K", quality = defaultQuality }: { size?: SizeTier; quality?: string | undefined } = {},
): number | null {
  if (qualities === undefined) return (prices as Partial<Record<SizeTier, number>>)[size] ?? null;
  const tables = prices as Record<string, Partial<Record<SizeTier, number>>>;
  const words = quality === "auto" ? Object.keys(tables) : [quality];
  const found = words.map((word) => tables[word]?.[size]);
  const known = found.filter((usd) => usd !== undefined);
  return known.length === 0 || known.length < found.length ? null : Math.max(...known);
}

/** The tokens of a request as an upstream counts them. Null: not told apart, or not counted. */
export interface TokenCounts {
  input: number | null;
  /** The tokens of `input` that are images. */
  imageInput: number | null;
  output: number | null;
  /** The tokens of `output` that are text, thoughts included. */
  textOutput: number | null;
}

/**
 * Returns what the tokens of a request to a provider cost, in whole micro-dollars, rounded once. Null when the rate of a token
 * that was counted is not known, and when the upstream does not tell tokens of images apart that the request may have. Other
 * sellers of the same model have rates of their own, so a provider without a preset has none.
 */
export function tokenCost(
  entry: UpstreamEntry,
  { model, references }: { model: string; references?: readonly unknown[] },
  { input, output, textOutput, ...told }: TokenCounts,
): number | null {
  const imageInput = told.imageInput ?? (references?.length === 0 ? 0 : null);
  const preset = presetOf(entry);
  const { tokenRates, jobPrice } = (preset && modelFacts(preset.name, model)) ?? {};
  const share = preset?.isOfJobs ? jobPrice : 1;
  if (!tokenRates || !share || input === null || imageInput === null || output === null) return null;
  const [images, words] = [Math.min(imageInput, input), Math.min(textOutput ?? 0, output)];
  const parts = [
    [input - images, tokenRates.textInput],
    [images, tokenRates.imageInput],
    [output - words, tokenRates.imageOutput],
    [words, tokenRates.textOutput],
  ] as const;
  let microUsd = 0;
  for (const [tokens, rate] of parts) {
    if (tokens > 0 && rate === undefined) return null;
    // Dollars a million tokens are micro-dollars a token.
    microUsd += tokens * (rate ?? 0);
  }
  return Math.round(microUsd * share);
}

type QualityPrices = Record<string, Partial<Record<SizeTier, number>>>;

/** Returns the entries of `models` in the configuration that stand for the models of a preset. */
export function modelEntries({ models }: Pick<Preset, "models">) {
  return models.map((model) => {
    const { id, sizes, ratios, qualities, defaultQuality, backgrounds, seed = false } = model;
    const { maxSeed, maxReferenceImages, jobPrice, asOf } = model;
    const prices = sizes.flatMap((size) => {
      const usd = priceOf(model, { size });
      return usd === null ? [] : [[size, usd]];
    });
    return {
      id,
      sizes,
      prices: Object.fromEntries(prices) as Partial<Record<SizeTier, number>>,
      ...(ratios !== undefined && { ratios }),
      ...(qualities !== undefined && {
        qualities,
        defaultQuality,
        qualityPrices: model.prices as QualityPrices,
      }),
      ...(backgrounds !== undefined && { backgrounds }),
      seed,
      ...(maxSeed !== undefined && { maxSeed }),
      ...(maxReferenceImages !== undefined && { maxReferenceImages }),
      ...(jobPrice !== undefined && { jobPrice }),
      ...(asOf !== undefined && { asOf }),
    };
  });
}
