import {
  type ListedBudget,
  type ListedModel,
  listModelsAndLimits,
  type TakenOptions,
} from "../../client/models.ts";
import { listRealtimeModels, NATIVE_SHAPES, type RealtimeModel } from "../../client/realtime.ts";
import { type ErrorCode, ImgbatchError } from "../../contract/errors.ts";
import {
  isTier,
  pixelAdvice,
  RATIOS,
  readImageSize,
  readPixels,
  SIZE_TIERS,
  sizeOfPixels,
  tierOf,
} from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits, referenceLimitByName, WIDEST_LIMITS } from "../../contract/limits.ts";
import type { Http } from "../../http/http.ts";
import { programName } from "../../kernel/command-line.ts";
import { type OptionField, type Options, withoutDefaults } from "../../prompts/options.ts";

const USUAL_SIZE = "1K";

/** What decides the price of an image. */
export interface Asked {
  /** Absent: that of the run. */
  model?: string | undefined;
  size?: string | undefined;
  quality?: string | undefined;
}

interface ImagePrice {
  imageMicroUsd: number;
  /** The amount that is held for it: the most that it can cost. */
  holdMicroUsd: number;
}

export interface ChosenModel {
  id: string;
  /** The provider whose prices these are; null when the service does not say. */
  provider: string | null;
  /** The quality that its run asks for where an image names none, if that is the model's default no more; else null. */
  pinnedQuality: string | null;
  /** Returns the price of an image. Null when the service does not say. */
  priceOf(asked: Asked): ImagePrice | null;
  /** Null when the service announces none: items have no options there. */
  options: TakenOptions | null;
  /** Whether the service says that its images cost real money. */
  isPaid: boolean;
  /** Whether the service says that its images are drawn, and the prices are no real money. */
  isPlay: boolean;
  maxReferenceImages: number;
}

/** A kind of models, in words and in errors. */
interface Kind {
  makes: string;
  kind: string;
  code: ErrorCode;
  param: string;
}

const BATCH: Kind = { makes: "batches", kind: "batch", code: "BATCH_IMAGE_INVALID_MODEL", param: "model" };
const REALTIME: Kind = {
  makes: "real-time images",
  kind: "real-time",
  code: "REALTIME_MODEL_NOT_FOUND",
  param: "--model",
};

/**
 * Returns the wanted model of a list, else the `earlier` one, else the first. `listed` is undefined if the service has no
 * list, or if the list lacks the earlier one: it leaves out models whose provider cannot be used now.
 */
async function findModel<Model extends { id: string }>(
  list: () => Promise<Model[]>,
  { makes, kind, code, param }: Kind,
  { named, earlier = null }: { named: string | null; earlier?: string | null },
): Promise<{ id: string; listed: Model | undefined }> {
  const wanted = named ?? earlier;
  const models = await list().catch((error) => {
    const hasNone =
      error instanceof ImgbatchError && (error.httpStatus === 404 || error.code === "BAD_RESPONSE");
    if (hasNone && wanted !== null) return null;
    throw error;
  });
  if (models === null) return { id: wanted ?? "", listed: undefined };
  const id = wanted ?? models[0]?.id;
  if (id === undefined) throw new ImgbatchError(code, `This key can use no model for ${makes}.`, { param });
  const listed = models.find((model) => model.id === id);
  if (listed !== undefined || id === earlier) return { id, listed };
  const there = models.map((model) => model.id).join(", ") || "none";
  throw new ImgbatchError(code, `There is no ${kind} model ${JSON.stringify(id)}; there is ${there}.`, {
    param,
  });
}

/** The models of a run. */
export interface RunModels {
  /** The model of items that name none. */
  first: ChosenModel;
  /** All items name their models: no option chooses another one. */
  isOfLines: boolean;
  of(asked: Asked): ChosenModel;
  /** The list of the service; null if it has none. */
  listed: readonly ListedModel[] | null;
  /** The limits of a batch that the service announces. */
  limits: Partial<Limits>;
  /** The budgets that it announces. */
  budgets: readonly ListedBudget[];
  /** Whether the list, or the earlier run, has a model. */
  isThere(id: string): boolean;
}

/**
 * Returns the model of a run: the named one, else that of the `earlier` run in its directory; null for the first of the
 * service's list. Where all items name theirs, the earlier one stays, so that no other images than theirs change.
 */
export function firstModel(
  items: readonly Asked[],
  named: string | null,
  earlier: string | null = null,
): string | null {
  if (!areNamed(items)) return named ?? earlier;
  return earlier ?? items.find(({ model }) => model === named)?.model ?? items[0]?.model ?? null;
}

function areNamed(items: readonly Asked[]): boolean {
  return items.length > 0 && items.every(({ model }) => model !== undefined);
}

/**
 * Chooses the models of a run. The first one is the wanted one, else the `earlier` one of the same run, else the first of the
 * service's list. A service without a list gets the wanted model unchecked. Throws `BATCH_IMAGE_INVALID_MODEL` when the list
 * does not have it, unless it is the earlier one.
 */
export async function chooseModels(
  http: Http,
  items: readonly Asked[],
  {
    named,
    earlier = null,
    provider = null,
    qualities = {},
  }: {
    named: string | null;
    earlier?: string | null | undefined;
    provider?: string | null;
    /** The default quality of each model when the run began: a new default changes none of its images. Default: none. */
    qualities?: Readonly<Record<string, string>> | undefined;
  },
  signal?: AbortSignal,
): Promise<RunModels> {
  let listed: readonly ListedModel[] | null = null;
  let limits: Partial<Limits> = {};
  let budgets: readonly ListedBudget[] = [];
  const list = async () => {
    const answer = await listModelsAndLimits(http, signal, provider);
    listed = answer.models;
    limits = answer.limits;
    budgets = answer.budgets;
    return answer.models;
  };
  const wanted = firstModel(items, named, earlier);
  const isOfLines = areNamed(items);
  // A wrong model of a line is reported with its line.
  const isGiven = isOfLines || wanted === earlier;
  const wish = isGiven ? { named: null, earlier: wanted } : { named: wanted, earlier };
  const found = await findModel(list, BATCH, wish);
  const first = chosenModel(found.id, found.listed, qualities[found.id]);
  const all = listed as readonly ListedModel[] | null;
  const models = new Map([[first.id, first]]);
  const of = ({ model: id = first.id }: Asked) => {
    const known =
      models.get(id) ??
      chosenModel(
        id,
        all?.find((model) => model.id === id),
        qualities[id],
      );
    models.set(id, known);
    return known;
  };
  const isThere = (id: string) => id === earlier || (all?.some((model) => model.id === id) ?? true);
  return { first, isOfLines, of, listed: all, limits, budgets, isThere };
}

/** Returns the pinned quality of each model that has one: see `ChosenModel`. */
export function pinnedQualities(models: readonly ChosenModel[]): Record<string, string> {
  return Object.fromEntries(
    models.flatMap(({ id, pinnedQuality }) => (pinnedQuality === null ? [] : [[id, pinnedQuality]])),
  );
}

/** Names the models that make images. */
export function usedModels({ first, of }: RunModels, images: readonly Asked[]): string {
  return [...new Set(images.map((image) => of(image).id))].join(", ") || first.id;
}

function chosenModel(id: string, listed: ListedModel | undefined, quality?: string): ChosenModel {
  const { provider = null, isPaid = false, isPlay = false, options: known = null } = listed ?? {};
  const isPinned = quality !== undefined && known?.defaultQuality !== quality;
  const pinnedQuality = isPinned && known?.qualities.includes(quality) ? quality : null;
  const options = known && pinnedQuality !== null ? { ...known, defaultQuality: pinnedQuality } : known;
  // What nobody has announced is for the service to say.
  const announced = listed?.maxReferenceImages ?? referenceLimitByName(id);
  const maxReferenceImages = announced ?? Number.POSITIVE_INFINITY;
  const priceOf = (asked: Asked) => listedPrice(listed && { ...listed, options }, asked);
  return { id, provider, pinnedQuality, priceOf, options, isPaid, isPlay, maxReferenceImages };
}

function listedPrice(
  listed: ListedModel | undefined,
  { size = USUAL_SIZE, quality }: Asked,
): ImagePrice | null {
  const { prices = [], options = null, imageCostMicroUsd = null, imageHoldMicroUsd } = listed ?? {};
  const word = quality ?? options?.defaultQuality ?? null;
  // Exact pixels cost as much as the nearest size.
  const pricedAs = pricedTier(size, prices);
  const found = prices.find((price) => price.size === pricedAs && price.quality === word);
  if (found !== undefined) return found;
  if (size !== USUAL_SIZE || quality !== undefined || imageCostMicroUsd === null) return null;
  return { imageMicroUsd: imageCostMicroUsd, holdMicroUsd: imageHoldMicroUsd ?? imageCostMicroUsd };
}

function pricedTier(size: string, prices: readonly { size: string }[]): string {
  const exact = readImageSize(size);
  if (exact === null || isTier(exact)) return size;
  return tierOf(
    exact,
    SIZE_TIERS.filter((tier) => prices.some((price) => price.size === tier)),
  );
}

/** The demands on the model. */
export interface Wish {
  /** Null: the first of the list. */
  model: string | null;
  options: Options;
  /** The largest number of input images in one request. */
  inputImages: number;
}

/** The model that makes the images. */
export interface ChosenRealtimeModel {
  id: string;
  /** Returns the price of an image in micro-dollars; null when the service does not say. */
  costOf(image: Asked): number | null;
  /** Whether the service says that its images cost real money. */
  isPaid: boolean;
  /** See `RealtimeModel`. */
  isPlay: boolean;
  /** Null when the service does not say. */
  aspectRatios: readonly string[] | null;
  imageSizes: readonly string[] | null;
  /** Null when the service announces none: it has no words for them then. */
  options: RealtimeModel["options"];
  /** Null when the service does not say. */
  maxInputImages: number | null;
}

/**
 * Chooses the model for real-time images: the wanted one, else the first of the service's list. The demands are checked
 * against the list before anything is sent. A service without a list gets the wanted model unchecked. Throws `REALTIME_MODEL_NOT_FOUND` and `USAGE`.
 */
export async function chooseRealtimeModel(
  http: Http,
  wish: Wish,
  signal?: AbortSignal,
): Promise<ChosenRealtimeModel> {
  const { id, listed } = await findModel(() => listRealtimeModels(http, signal), REALTIME, {
    named: wish.model,
  });
  const model: ChosenRealtimeModel = {
    id,
    costOf: (asked) => realtimeCost(listed, asked),
    isPaid: listed?.isPaid ?? false,
    isPlay: listed?.isPlay ?? false,
    aspectRatios: listed?.aspectRatios ?? null,
    imageSizes: listed?.imageSizes ?? null,
    options: listed?.options ?? null,
    maxInputImages: listed?.maxInputImages ?? null,
  };
  const [problem] = realtimeProblems(model, wish.options);
  if (problem !== undefined) {
    const flag = `--${problem.field.replaceAll("_", "-")}`;
    throw new ImgbatchError("USAGE", `${flag} ${problem.message}.`, { param: flag });
  }
  requireInputs(model, wish);
  return model;
}

function realtimeCost(
  listed: RealtimeModel | undefined,
  { size = USUAL_SIZE, quality }: Asked,
): number | null {
  const { costsMicroUsd = null, qualityCostsMicroUsd = {} } = listed ?? {};
  const costs = quality === undefined ? costsMicroUsd : (qualityCostsMicroUsd[quality] ?? null);
  const sizes = Object.keys(costs ?? {}).map((each) => ({ size: each }));
  return costs?.[pricedTier(size, sizes)] ?? null;
}

function requireInputs(model: ChosenRealtimeModel, { inputImages }: Wish): void {
  if (model.maxInputImages === null || inputImages <= model.maxInputImages) return;
  const message = `${model.id} takes at most ${model.maxInputImages} input images, not ${inputImages}.`;
  throw new ImgbatchError("USAGE", message, { param: "--image" });
}

/** Returns what of these options cannot be asked for in real time, and why: each by its name in a line. */
export function realtimeProblems(
  model: ChosenRealtimeModel,
  asked: Options,
): { field: OptionField; message: string }[] {
  const { id, aspectRatios, imageSizes, options } = model;
  const { aspect_ratio, quality, background, negative_prompt } = withoutDefaults(asked);
  const problems: { field: OptionField; message: string }[] = [];
  const add = (field: OptionField, message: string) => problems.push({ field, message });
  const check = (field: OptionField, value: string | undefined, known: readonly string[] | null) => {
    if (value === undefined || known === null || known.includes(value)) return;
    add(field, `${value}: ${id} makes ${known.length === 0 ? "none" : known.join(", ")}`);
  };
  check("aspect_ratio", aspect_ratio, aspectRatios);
  const pixels = pixelsProblem(model, asked);
  if (pixels !== null) add("size", pixels);
  else if (asked.size === undefined || isTier(asked.size)) check("size", asked.size, imageSizes);
  const words = { quality, background, negative_prompt };
  for (const [field, value] of Object.entries(words) as [keyof typeof words, string | undefined][])
    if (value !== undefined && options === null) add(field, `${value}: ${BATCHES_ONLY}`);
  if (options === null) return problems;
  check("quality", quality, options.qualities);
  check("background", background, options.backgrounds);
  if (negative_prompt !== undefined && !options.negativePrompt)
    add("negative_prompt", `${negative_prompt}: ${id} takes none; say it in the prompt`);
  return problems;
}

/** Returns why a size in pixels cannot be asked for in real time; null when it can, or is none. */
function pixelsProblem(
  { id, imageSizes, aspectRatios, options }: ChosenRealtimeModel,
  { size, aspect_ratio }: Pick<Options, "size" | "aspect_ratio">,
): string | null {
  const exact = size === undefined ? null : readPixels(size);
  if (exact === null) return null;
  if (aspect_ratio !== undefined) return `${size}: it has a ratio of its own; leave the aspect ratio out`;
  const facts = {
    tiers: SIZE_TIERS.filter((tier) => imageSizes?.includes(tier) ?? true),
    ratios: RATIOS.extended.filter((ratio) => aspectRatios?.includes(ratio) ?? true),
    pixels: sizeOfPixels(NATIVE_SHAPES, exact) === null ? (options?.pixels ?? null) : null,
  };
  if (sizeOfPixels(facts, exact) !== null) return null;
  const way = `\`${programName()} submit\` makes other pixels, where the model does`;
  return `${size}: in real time, ${id} takes ${pixelAdvice(facts, exact)}; ${way}`;
}

/**
 * Returns the limits that a service announces for what real-time requests have of a prompt: nothing else of it is known. The
 * service is asked only for what is above the usual limits; one without an announcement decides itself.
 */
export async function announcedLimits(
  http: Http,
  asked: readonly { bytes?: number; prompt?: { length: number }; outputCount?: number }[],
  signal?: AbortSignal,
): Promise<Limits> {
  const isUnusual = asked.some(
    ({ bytes = 0, prompt = "", outputCount = 1 }) =>
      bytes > DEFAULT_LIMITS.referenceImageBytes ||
      prompt.length > DEFAULT_LIMITS.promptChars ||
      outputCount > DEFAULT_LIMITS.outputCountPerItem,
  );
  if (!isUnusual) return WIDEST_LIMITS;
  const { limits } = await listModelsAndLimits(http, signal).catch((error) => {
    signal?.throwIfAborted();
    if (error instanceof ImgbatchError) return { limits: {} };
    throw error;
  });
  return { ...WIDEST_LIMITS, ...limits };
}

/** Only our own service has words for some options in real time. */
export const BATCHES_ONLY = "cannot be chosen in real time here; use `imgbatch submit`";
