import { didYouMean } from "../kernel/did-you-mean.ts";
import { findPreset, modelEntries, type Preset, UPSTREAM_NAMES } from "../providers/catalogue/catalogue.ts";
import { VENDOR_NAMES } from "./vendors.ts";

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A model without a price in the catalogue, and its price in US dollars from the command line. */
export interface PricedModel {
  /** Null: the default of the preset. */
  id: string | null;
  usd: number;
}

/** Returns the parts of a configuration that make the upstreams of presets the only ones. */
export function upstreamConfig(...names: readonly string[]) {
  return { models: undefined, groups: undefined, providers: names.map((name) => ofPreset(name, names)) };
}

/** Beside another upstream, one serves its own models alone. */
function ofPreset(name: string, { length }: readonly string[]) {
  const { provider = {}, models = [] } = findPreset(name) ?? {};
  const isAlone = length === 1 || "models" in provider;
  return isAlone ? { preset: name } : { preset: name, models: models.map(({ id }) => id) };
}

/** Returns the first name in `providers` that is no preset, in words; null when all are. */
export function unknownPreset(value: unknown): string | null {
  const entries = isObject(value) && Array.isArray(value.providers) ? value.providers : [];
  for (const [at, entry] of entries.entries()) {
    if (!isObject(entry) || typeof entry.preset !== "string" || findPreset(entry.preset)) continue;
    const meant = didYouMean(entry.preset, UPSTREAM_NAMES);
    const advice = meant === null ? `use ${UPSTREAM_NAMES.join(", ")}` : `did you mean ${meant}?`;
    return `providers.${at}.preset: there is no preset ${JSON.stringify(entry.preset)}: ${advice}`;
  }
  return null;
}

/**
 * Returns a configuration, not checked yet, in which each entry of `providers` with a `preset` has the settings of it. Where
 * the configuration names no models, they are those of its presets, and its groups charge what the upstreams charge. A key
 * that it has already wins. Any other value is returned unchanged.
 */
export function withPresets(value: unknown, priced: PricedModel | null = null): unknown {
  if (!isObject(value) || !Array.isArray(value.providers)) return value;
  const presets = value.providers.flatMap((entry): (Preset & { isFree: boolean })[] => {
    const found = isObject(entry) ? findPreset(entry.preset) : undefined;
    return found ? [{ ...found, isFree: isObject(entry) && entry.free === true }] : [];
  });
  if (presets.length === 0) return value;
  const known = presets.flatMap((preset) =>
    modelEntries(preset).map((model) => ({
      ...model,
      ...(preset.isFree && { prices: { "1K": 0, ...model.prices } }),
    })),
  );
  const own = known.filter(({ id }, at) => known.findIndex((each) => each.id === id) === at);
  // Vendors have a discount for jobs alone.
  const share = presets.every(({ isOfJobs }) => isOfJobs)
    ? Math.max(...own.map(({ jobPrice }) => jobPrice ?? 0))
    : 1;
  const charged = { batchDiscount: share, holdMultiplier: share };
  const { groups = [{ name: "default" }] } = value;
  return {
    ...value,
    models: withPrice(value.models === undefined ? own : value.models, priced),
    groups: Array.isArray(groups)
      ? groups.map((group) => (isObject(group) ? { ...charged, ...group } : group))
      : groups,
    providers: value.providers.map((entry) => {
      const preset = isObject(entry) ? findPreset(entry.preset) : undefined;
      return preset ? servingToo({ ...preset.provider, ...entry }, priced) : entry;
    }),
  };
}

/** Gives a model its price, unless it has one. A model that is missing is added. */
function withPrice(models: unknown, priced: PricedModel | null): unknown {
  if (priced === null || !Array.isArray(models)) return models;
  const id = priced.id ?? (models[0] as { id?: unknown } | undefined)?.id;
  const prices = { "1K": priced.usd };
  if (!models.some((model) => isObject(model) && model.id === id)) return [...models, { id, prices }];
  return models.map((model) => {
    const known = isObject(model) && isObject(model.prices) ? model.prices : {};
    if (!isObject(model) || model.id !== id || "1K" in known) return model;
    // It holds for every quality.
    return { ...model, prices: { ...known, ...prices }, qualityPrices: undefined };
  });
}

/** An entry whose upstream has other ids serves only those. A new model has the id that the upstream knows. */
function servingToo(entry: Record<string, unknown>, priced: PricedModel | null) {
  const { models } = entry;
  if (!isObject(models) || !priced?.id || priced.id in models) return entry;
  return { ...entry, models: { ...models, [priced.id]: priced.id } };
}

/**
 * Returns a configuration, not checked yet, with the settings of its `vendor.preset`. A key that it has already wins.
 * Any other value is returned unchanged.
 */
export function withVendorPreset(value: unknown): unknown {
  if (!isObject(value) || !isObject(value.vendor)) return value;
  const name = VENDOR_NAMES.find((each) => isObject(value.vendor) && each === value.vendor.preset);
  const preset = findPreset(name);
  if (preset === undefined) return value;
  const filled = (given: unknown, settings: object) =>
    given === undefined ? settings : isObject(given) ? { ...settings, ...given } : given;
  return {
    ...value,
    models: value.models === undefined ? modelEntries(preset) : value.models,
    features: filled(value.features, { strictImageConfig: false }),
    vendor: filled(value.vendor, { keyHeaders: [preset.provider.keyHeader] }),
  };
}
