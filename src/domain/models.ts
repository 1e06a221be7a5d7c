import {
  type AspectRatio,
  BACKGROUNDS,
  type Background,
  type ImageSize,
  imageSizePx,
  isTier,
  MOST_SEED,
  makesPixels,
  type PixelSizes,
  pixelsAt,
  RATIOS,
  type ShapeFacts,
  type SizePx,
  type SizeTier,
  tierOf,
} from "../contract/image-formats.ts";
import { referenceLimitByName } from "../contract/limits.ts";
import { fieldsOf } from "../kernel/json.ts";
import { counted } from "../kernel/text.ts";
import type { ProviderHealth } from "./health/provider-health.ts";
import type {
  Carried,
  ImageProvider,
  ItemProvider,
  Needs,
  UpstreamFacts,
  VerbatimRequest,
} from "./ports/image-provider.ts";
import type { BatchRecord } from "./records.ts";

/** A model as the operator configures it. */
export interface ModelEntry {
  id: string;
  /** Only models of the family `native` can be used in batches. */
  family: string;
  batch: boolean;
  realtime: boolean;
  ratios: keyof typeof RATIOS | readonly AspectRatio[];
  sizes: readonly SizeTier[];
  /** US dollars per image by tier, in the default quality. Without a price at 1K a model has no batch price. */
  prices: Readonly<Partial<Record<SizeTier, number>>>;
  /** The model's own words, and their prices where they differ. Left out: it has none. */
  qualities?: readonly string[] | undefined;
  defaultQuality?: string | undefined;
  qualityPrices?: Readonly<Record<string, Readonly<Partial<Record<SizeTier, number>>>>> | undefined;
  /** Left out: none can be asked for. */
  backgrounds?: readonly Background[] | undefined;
  /** Whether it takes a seed. Left out: as its provider. */
  seed?: boolean | undefined;
  /** The largest seed that it takes. Left out: as large as seeds may be. */
  maxSeed?: number | undefined;
  maxReferenceImages?: number | undefined;
  /** The share of the price that an image of an upstream's job costs. Null: no jobs. Left out: as the group says. */
  jobPrice?: number | null | undefined;
  /** The model that providers run in its place. Left out: the model itself. */
  mapsTo?: string | undefined;
}

/** A key belongs to a group. The group decides which models the key may use, and their prices. */
export interface GroupEntry {
  name: string;
  platform: string;
  allowBatchImages: boolean;
  /** Model ids, or `*` for all. */
  models: readonly string[];
  rateMultiplier: number;
  batchDiscount: number;
  holdMultiplier: number;
}

function groupHasModel(group: GroupEntry, model: string): boolean {
  return group.models.includes("*") || group.models.includes(model);
}

/** The models that a key of this group can name in a batch request. */
export function batchModelsOf(group: GroupEntry, models: readonly ModelEntry[]): ModelEntry[] {
  return models.filter((m) => m.family === "native" && m.batch && groupHasModel(group, m.id));
}

/** The most reference images that one item of a batch may have: 0 for a model of which neither entry nor name says how many. */
export function referenceLimit(model: ModelEntry): number {
  return model.maxReferenceImages ?? referenceLimitByName(model.id) ?? 0;
}

/** The model that providers run for a requested model id: its `mapsTo`, or the id itself, also for an unknown model. */
function executedModel(models: readonly ModelEntry[], modelId: string): string {
  return models.find(({ id }) => id === modelId)?.mapsTo ?? modelId;
}

/** A provider that makes images for a model. */
export interface Offer<P extends ImageProvider = ImageProvider> {
  provider: P;
  /** The model that the provider is asked to run. Prices and limits stay those of the requested model. */
  executedModel: string;
  /** The operator's factor on the provider's price. */
  rateMultiplier: number;
  /** Whether the service has upstreams, too. Drawings cost no real money then. */
  isBesideUpstreams: boolean;
}

/** The values of options that a provider makes of a model. */
export interface OptionFacts extends ShapeFacts {
  qualities: readonly string[];
  defaultQuality: string | null;
  backgrounds: readonly Background[];
  seed: boolean;
  maxSeed: number;
  negativePrompt: boolean;
  mask: boolean;
  /** The pictures are drawn, without a model. */
  areDrawings: boolean;
}

/** The qualities of drawings. */
export const DRAWN = { qualities: ["low", "medium", "high"], defaultQuality: "medium" };

/** The pixels of drawings that are asked for in pixels: as OpenAI's models take them. */
const DRAWN_PIXELS: PixelSizes = {
  multipleOf: 16,
  longestPx: 3840,
  leastPixels: 655_360,
  mostPixels: 8_294_400,
  mostRatio: 3,
};

/**
 * Returns what an item may ask a provider for: what the model makes and the provider passes on. A tier and a ratio are listed
 * when the model has pixels for them.
 */
export function optionsOf(
  model: ModelEntry,
  { upstream }: Pick<ImageProvider, "upstream">,
  executedModel: string = model.id,
): OptionFacts {
  const { ratios = "any", tiers = "any", options = [], pixelsOf } = upstream?.takes ?? {};
  const carries = (name: Carried) => upstream === undefined || options.includes(name);
  const own = { qualities: model.qualities ?? [], defaultQuality: model.defaultQuality ?? null };
  const isDrawn = isDrawing({ upstream });
  const words = isDrawn && own.qualities.length === 0 ? DRAWN : own;
  const pixels = pixelsOf?.(executedModel) ?? null;
  const ownRatios = ratiosOf(model).filter((ratio) => ratios === "any" || ratios.includes(ratio));
  const ownTiers = pricedSizes(model).filter((tier) => tiers === "any" || tiers.includes(tier));
  const canMake = (tier: SizeTier, ratio: AspectRatio) => pixelsAt(pixels, tier, ratio) !== null;
  return {
    ratios: ownRatios.filter((ratio) => ownTiers.some((tier) => canMake(tier, ratio))),
    tiers: ownTiers.filter((tier) => ownRatios.some((ratio) => canMake(tier, ratio))),
    pixels: isDrawn ? DRAWN_PIXELS : pixels,
    ...(carries("quality") ? words : { qualities: [], defaultQuality: null }),
    backgrounds: carries("background") ? (isDrawn ? BACKGROUNDS : (model.backgrounds ?? [])) : [],
    seed: carries("seed") && (isDrawn || model.seed !== false),
    maxSeed: isDrawn ? MOST_SEED : (model.maxSeed ?? MOST_SEED),
    negativePrompt: carries("negativePrompt"),
    mask: upstream !== undefined && carries("mask"),
    areDrawings: isDrawn,
  };
}

/**
 * Returns the price of an image in US dollars; of exact pixels, that of the nearest tier. Default: in the default quality. The
 * quality `auto` may cost as much as the dearest. Undefined when it is not known.
 */
export function imagePriceUsd(
  model: ModelEntry,
  asked: ImageSize,
  quality: string | null = null,
): number | undefined {
  const { qualityPrices: tables, defaultQuality } = model;
  const word = quality ?? defaultQuality;
  const size = isTier(asked) ? asked : tierOf(asked, pricedSizes(model));
  if (tables === undefined || word === undefined) return model.prices[size];
  if (word !== "auto") return tables[word]?.[size];
  const all = Object.values(tables).map((table) => table[size] ?? Number.NaN);
  const dearest = Math.max(...all);
  return Number.isFinite(dearest) ? dearest : undefined;
}

/**
 * Returns the pixels to ask a provider for. A tier and a ratio stand for the pixels that its model has for them, else for
 * those that most models make.
 */
export function requestedPixels(
  { upstream }: Pick<ImageProvider, "upstream">,
  executedModel: string,
  { size, ratio }: { size: ImageSize; ratio: AspectRatio },
): SizePx {
  const pixels = upstream?.takes.pixelsOf?.(executedModel) ?? null;
  return (isTier(size) ? pixelsAt(pixels, size, ratio) : null) ?? imageSizePx(size, ratio);
}

/** The identity of drawings, which need no upstream. */
export const DRAWINGS = "procedural";

/** Returns the identity of the system behind a provider: type and address. */
export function identityOf(provider: ImageProvider): string {
  return provider.upstream?.identity ?? DRAWINGS;
}

/** Returns whether a provider draws, or stands for one that does. */
export function isDrawing({ upstream }: { upstream?: UpstreamFacts | undefined }): boolean {
  return upstream === undefined || upstream.areDrawings === true;
}

/** Returns whether images of a provider cost the operator money. */
export function isPaid({ upstream }: ImageProvider): boolean {
  return upstream !== undefined && !upstream.isFree;
}

/** Returns whether a request that is sent again after a lost answer may be paid again: an upstream that takes a key knows it. */
export function mayBePaidTwice(provider: ImageProvider): boolean {
  return isPaid(provider) && !provider.upstream?.isRepeatable;
}

/** Returns the id by which a provider knows a requested model; null when it does not serve it. */
export function providerModel(
  provider: ImageProvider,
  models: readonly ModelEntry[],
  modelId: string,
): string | null {
  const executed = executedModel(models, modelId);
  const hasNoJobs = models.find(({ id }) => id === modelId)?.jobPrice === null;
  if (provider.kind === "job" && hasNoJobs) return null;
  if (provider.upstream) return provider.upstream.modelFor(modelId, executed);
  return provider.serves(executed) ? executed : null;
}

/**
 * Finds the providers for requests. The order is that of the configuration. Its providers are those that are used for
 * batches, or those that are used for real time.
 */
export class Offers<P extends ImageProvider = ImageProvider> {
  readonly #providers: readonly P[];
  readonly #models: readonly ModelEntry[];
  readonly #rates: ReadonlyMap<string, number>;
  readonly #health: Pick<ProviderHealth, "blockOf"> | undefined;
  readonly #hasUpstreams: boolean;

  /**
   * A provider without a rate multiplier has the factor 1. Without `health`, none is disabled. `hasUpstreams` is about all
   * providers of the service; it defaults to these.
   */
  constructor(
    providers: readonly P[],
    models: readonly ModelEntry[],
    rates: ReadonlyMap<string, number> = new Map(),
    health?: Pick<ProviderHealth, "blockOf">,
    hasUpstreams: boolean = providers.some(({ upstream }) => upstream !== undefined),
  ) {
    this.#providers = providers;
    this.#models = models;
    this.#rates = rates;
    this.#health = health;
    this.#hasUpstreams = hasUpstreams;
  }

  /**
   * Returns the providers that serve a requested model, without the disabled ones; those that pause are included.
   * Drawings never take over from an upstream, nor an upstream from drawings: the first provider decides.
   */
  all(modelId: string, needs?: Needs): Offer<P>[] {
    const able = this.#able(this.serving(modelId), needs);
    const first = able[0]?.provider;
    return first ? able.filter(({ provider }) => mayTakeOver(first, provider)) : [];
  }

  /** Returns the first provider that serves the model, or the one of a name; null when there is none. */
  first(modelId: string, needs?: Needs, name: string | null = null): Offer<P> | null {
    const serving = this.serving(modelId).filter(({ provider }) => name === null || provider.name === name);
    return this.#able(serving, needs)[0] ?? null;
  }

  #able(serving: readonly Offer<P>[], needs: Needs | undefined): Offer<P>[] {
    return fittest(serving, needs).filter(
      ({ provider, executedModel }) => this.#health?.blockOf(provider, executedModel)?.untilMs !== null,
    );
  }

  get providerNames(): string[] {
    return this.#providers.map(({ name }) => name);
  }

  /**
   * Returns what a request for a model may ask for: what any of its providers makes, or the one of a name, also while it is
   * disabled, since a repeat must be the same request. Where the first one is an upstream, drawings do not count, and the
   * other way round. Null when no provider serves the model.
   */
  optionsFor(model: ModelEntry, name: string | null = null): OptionFacts | null {
    const serving = this.serving(model.id).filter(({ provider }) => name === null || provider.name === name);
    const [first] = serving.map(({ provider }) => provider);
    if (first === undefined) return null;
    const alike = serving.filter(({ provider }) => isDrawing(provider) === isDrawing(first));
    const all = alike.map(({ provider, executedModel }) => optionsOf(model, provider, executedModel));
    const unionOf = <T>(valuesOf: (facts: OptionFacts) => readonly T[]) => [
      ...new Set(all.flatMap(valuesOf)),
    ];
    const worded = all.find(({ qualities }) => qualities.length > 0) ?? all[0];
    const { mask } = optionsOf(
      model,
      serving.find(({ provider }) => optionsOf(model, provider).mask)?.provider ?? {},
    );
    return {
      ratios: ratiosOf(model).filter((ratio) => unionOf(({ ratios }) => ratios).includes(ratio)),
      tiers: pricedSizes(model).filter((tier) => unionOf(({ tiers }) => tiers).includes(tier)),
      qualities: worded?.qualities ?? [],
      defaultQuality: worded?.defaultQuality ?? null,
      backgrounds: BACKGROUNDS.filter((each) => unionOf(({ backgrounds }) => backgrounds).includes(each)),
      seed: all.some(({ seed }) => seed),
      maxSeed: Math.max(...all.map(({ maxSeed }) => maxSeed)),
      negativePrompt: all.some(({ negativePrompt }) => negativePrompt),
      mask,
      areDrawings: isDrawing(first),
      // A shape that only another provider has is told apart when the request looks for one that makes it.
      pixels: all.some(({ pixels }) => pixels === "any")
        ? "any"
        : (all.find(({ pixels }) => pixels !== null)?.pixels ?? null),
    };
  }

  /** The same where the model need not be served. */
  options(model: ModelEntry): OptionFacts {
    return this.optionsFor(model) ?? optionsOf(model, {});
  }

  /**
   * Returns the providers that may make the items of a batch, in their order. Empty if the provider that it was priced with
   * is not configured, nor one of the same type and address.
   */
  forBatch(batch: Pick<BatchRecord, "provider" | "upstream" | "model">, needs?: Needs): Offer<P>[] {
    const serving = this.serving(batch.model);
    const same = fittest(
      serving.filter(({ provider }) => identityOf(provider) === batch.upstream),
      needs,
    );
    const own = same.find(({ provider }) => provider.name === batch.provider) ?? same[0];
    if (own === undefined) return [];
    const others = new Set(fittest(serving, needs));
    return serving.filter(
      (each) => each === own || (others.has(each) && mayTakeOver(own.provider, each.provider)),
    );
  }

  /** Returns the configured providers that serve a requested model, disabled ones too. */
  serving(modelId: string): Offer<P>[] {
    return this.#providers.flatMap((provider) => {
      const model = providerModel(provider, this.#models, modelId);
      if (model === null) return [];
      const rateMultiplier = this.#rates.get(provider.name) ?? 1;
      return [{ provider, executedModel: model, rateMultiplier, isBesideUpstreams: this.#hasUpstreams }];
    });
  }
}

/** What of a request no provider can make. `problem`: why, in words for the caller behind "The line". */
export interface UnmetNeed {
  about: "references" | "size" | "aspectRatio" | Carried;
  problem: string;
}

/** Returns why none of these providers can ever make what is needed; null when one can, or there is none. */
export function unmetNeed(offers: readonly Offer[], needs: Needs): UnmetNeed | null {
  if (offers.length === 0 || fittest(offers, needs).length > 0) return null;
  const most = Math.max(...offers.map(({ provider }) => mostReferences(provider)));
  if (needs.references > most) {
    const problem = `has ${counted(needs.references, "reference image")}; the providers of this model take ${most === 0 ? "none" : `at most ${most}`}`;
    return { about: "references", problem };
  }
  const isMade = (need: Partial<Needs>) =>
    fittest(offers, { references: 0, ratios: [], sizes: [], ...need }).length > 0;
  const option = needs.options?.find((each) => !isMade({ options: [each] }));
  if (option !== undefined) {
    return { about: option, problem: `asks for ${option}, which no provider of this model passes on` };
  }
  const about = isMade({ sizes: needs.sizes }) ? "aspectRatio" : "size";
  const problem = "asks for a size, an aspect ratio or another option that no provider of this model makes";
  return { about, problem };
}

/**
 * Returns the fields of a vendor's request that have no effect because this provider does not speak the API of that vendor.
 * Without an upstream a provider draws, and draws `systemInstruction` with the prompt.
 */
export function ignoredBy(
  { upstream }: Pick<ImageProvider, "upstream">,
  verbatim: VerbatimRequest | undefined,
): string[] {
  if (verbatim === undefined || verbatim.api === upstream?.takes.api) return [];
  const { contents: _contents, generationConfig, ...fields } = verbatim.fields;
  const { responseModalities: _modalities, ...config } = fieldsOf(generationConfig) ?? {};
  const isDrawn = (name: string) => upstream === undefined && name === "systemInstruction";
  return [
    ...Object.keys(fields).filter((name) => !isDrawn(name)),
    ...Object.keys(config).map((name) => `generationConfig.${name}`),
  ];
}

/** The most reference images of one request that a provider takes. */
function mostReferences({ upstream }: ImageProvider): number {
  if (!upstream || upstream.takes.usesFirstReferences) return Number.POSITIVE_INFINITY;
  return upstream.takes.maxReferences;
}

/** Returns the offers that can make what is needed: with all references, else with the first references only. */
function fittest<P extends ImageProvider>(offers: readonly Offer<P>[], needs: Needs | undefined): Offer<P>[] {
  if (needs === undefined) return [...offers];
  const able = offers.filter(({ provider: { upstream }, executedModel }) => {
    // A drawing has no place for a mask.
    if (!upstream) return !needs.options?.includes("mask");
    const { ratios, tiers, options = [], pixelsOf } = upstream.takes;
    const pixels = pixelsOf?.(executedModel) ?? null;
    const makes = (size: ImageSize) => {
      if (isTier(size)) {
        const isTaken = tiers === "any" || tiers.includes(size);
        return isTaken && needs.ratios.every((ratio) => pixelsAt(pixels, size, ratio) !== null);
      }
      return pixels === "any" || (pixels !== null && makesPixels(pixels, imageSizePx(size, "1:1")));
    };
    return (
      areAllIn(ratios, needs.ratios) && needs.sizes.every(makes) && areAllIn(options, needs.options ?? [])
    );
  });
  const whole = able.filter(
    ({ provider: { upstream } }) => needs.references <= (upstream?.takes.maxReferences ?? Infinity),
  );
  return whole.length > 0
    ? whole
    : able.filter(({ provider }) => needs.references <= mostReferences(provider));
}

function areAllIn<T>(known: "any" | readonly T[], wanted: readonly T[]): boolean {
  return known === "any" || wanted.every((each) => known.includes(each));
}

/** Another item provider may take over, when the images stay real and do not begin to cost money. */
function mayTakeOver(own: ImageProvider, other: ImageProvider): boolean {
  if (own === other) return true;
  const areItems = (each: ImageProvider): each is ItemProvider =>
    each.kind === "item" && each.upstream !== undefined;
  return areItems(own) && areItems(other) && (isPaid(own) || !isPaid(other));
}

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
  return model.sizes.filter((size) => imagePriceUsd(model, size) !== undefined);
}

export function ratiosOf({ ratios }: Pick<ModelEntry, "ratios">): readonly AspectRatio[] {
  return typeof ratios === "string" ? RATIOS[ratios] : ratios;
}
