import type { Request, Response } from "express";
import { announcedPixels } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { SizeTier } from "../../contract/image-formats.ts";
import type { NativeBody } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { isPlayMoney, priceRealtimeImage, rateFor } from "../../domain/billing/payer.ts";
import {
  batchModelsOf,
  isPaid,
  MAX_INPUT_IMAGES,
  type ModelEntry,
  pricedSizes,
  ratiosOf,
  realtimeModelsOf,
} from "../../domain/models.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { accountOf, callerOf } from "../http/authenticate.ts";
import { invalidArgument } from "../http/errors.ts";
import { readQuery, tokenNumber } from "../http/parameters.ts";
import type { Operation } from "../operation.ts";

const INPUT_TOKENS = 131_072;
const OUTPUT_TOKENS = 32_768;

/** Of a name that is not known, in an error. */
const SHOWN_NAME_CHARS = 100;
const NATIVE_PAGE = 50;
const SHARED_PAGE = 1000;

/** Names that OpenAI's clients have built in. Without a configuration they stand for the first model. */
const BUILT_IN = ["gpt-image-*", "dall-e-*", "chatgpt-image-latest"];

/**
 * The model of those that the caller can use: the one with this id, else the one that the
 * name stands for, the longest name first; the first model without a name. Null when the name is not known.
 */
function namedAmong(
  name: string | null,
  models: readonly ModelEntry[],
  names: ApiDeps["modelNames"],
): ModelEntry | null {
  const byId = (id: string) => models.find((model) => model.id === id) ?? null;
  if (name === null) return models[0] ?? null;
  // Google's libraries write it before each id.
  const bare = name.replace(/^models\//, "");
  if (bare !== name) return namedAmong(bare, models, names);
  const own = byId(name);
  if (own !== null) return own;
  const matching = Object.keys(names).filter((known) => stands(known, name));
  const [best] = matching.sort((a, b) => Number(b === name) - Number(a === name) || b.length - a.length);
  if (best !== undefined) return byId(names[best] ?? "");
  return BUILT_IN.some((known) => stands(known, name)) ? (models[0] ?? null) : null;
}

/** The names that stand for a model in whole, without those that are the id of another one. */
function wholeNames(
  models: readonly ModelEntry[],
  names: ApiDeps["modelNames"],
): { name: string; model: ModelEntry }[] {
  const whole = new Set([...Object.keys(names), ...BUILT_IN].filter((name) => !name.endsWith("*")));
  return [...whole].flatMap((name) => {
    const model = namedAmong(name, models, names);
    return model === null || model.id === name ? [] : [{ name, model }];
  });
}

function stands(known: string, name: string): boolean {
  return known.endsWith("*") ? name.startsWith(known.slice(0, -1)) : known === name;
}

/** The models that the caller may use and that a provider serves now, and how it sees one of them. */
async function catalogueOf(deps: ApiDeps, response: Response) {
  const account = await accountOf(deps, response);
  const { group } = callerOf(response);
  const models = realtimeModelsOf(group, deps.models).filter(
    ({ id }) => deps.realtimeOffers.first(id) !== null,
  );
  /** A model as the native API describes it, with what an image costs this group now. */
  const view = (model: ModelEntry): NativeBody<"NativeModel"> => {
    const offer = deps.realtimeOffers.first(model.id);
    const rate = offer === null ? 1 : rateFor(offer, account);
    const sizes = pricedSizes(model);
    const { qualities, defaultQuality, backgrounds, seed, negativePrompt, pixels } =
      deps.realtimeOffers.options(model);
    const pricesOf = (quality: string | null) =>
      Object.fromEntries(
        sizes.flatMap((size: SizeTier) => {
          const price = priceRealtimeImage(model, size, group, rate, quality);
          return price === null ? [] : [[size, microsToNumber(price)]];
        }),
      );
    return {
      name: `models/${model.id}`,
      version: "1",
      displayName: model.id,
      description: "Makes and edits images",
      inputTokenLimit: INPUT_TOKENS,
      outputTokenLimit: OUTPUT_TOKENS,
      supportedGenerationMethods: [
        "generateContent",
        "streamGenerateContent",
        ...(batchModelsOf(group, [model]).length > 0 ? ["batchGenerateContent"] : []),
      ],
      aspectRatios: [...ratiosOf(model)],
      imageSizes: sizes,
      maxInputImages: MAX_INPUT_IMAGES,
      imageOptions: {
        pixels: announcedPixels(pixels),
        quality: [...qualities],
        defaultQuality,
        background: [...backgrounds],
        seed,
        negativePrompt,
      },
      pricing: {
        currency: "usd",
        images: pricesOf(null),
        qualities: Object.fromEntries(qualities.map((quality) => [quality, pricesOf(quality)])),
        ...(offer !== null && isPaid(offer.provider) ? { paid: true } : {}),
        ...(offer !== null && isPlayMoney(offer, account) ? { play_money: true } : {}),
      },
    };
  };
  /** A model under one of its names, also with the fields that OpenAI clients read. Its time of creation is not known. */
  const sharedView = (name: string, model: ModelEntry): NativeBody<"SharedModel"> => ({
    id: name,
    object: "model",
    created: 0,
    owned_by: "imgbatch",
    ...view(model),
  });
  return { models, view, sharedView };
}

/** The name of the model in the path. */
const modelParameter = ({ params: { model } }: Request) => (typeof model === "string" ? model : "");

/** What a model is asked for. */
type Use = "realtime" | "batch";

/** The models that a group may use: in real time, or in batches, which need a price. */
function usableModels({ models }: ApiDeps, group: Caller["group"], use: Use): ModelEntry[] {
  if (use === "realtime") return realtimeModelsOf(group, models);
  return batchModelsOf(group, models).filter((model) => pricedSizes(model).length > 0);
}

/**
 * The model of the path, when the caller may use it. A model without a provider is a later and different error.
 * Throws `REALTIME_MODEL_NOT_FOUND`.
 */
export function findModel(deps: ApiDeps, request: Request, response: Response, use: Use): ModelEntry {
  return findAmong(usableModels(deps, callerOf(response).group, use), modelParameter(request));
}

/**
 * The model of a request to OpenAI's API. Without a name, and for names that have none, it is the first model that a provider
 * serves now. Throws `REALTIME_MODEL_NOT_FOUND`.
 */
export function modelNamed(deps: ApiDeps, group: Caller["group"], name: string | null, use: Use): ModelEntry {
  const offers = use === "batch" ? deps.offers : deps.realtimeOffers;
  const isServed = ({ id }: ModelEntry) => offers.first(id) !== null;
  const models = usableModels(deps, group, use);
  const servedFirst = [...models.filter(isServed), ...models.filter((model) => !isServed(model))];
  const model = namedAmong(name, servedFirst, deps.modelNames);
  if (model === null) throw modelNotFound(name ?? "");
  return model;
}

/** The model of this id, with or without `models/` before it. Throws `REALTIME_MODEL_NOT_FOUND`. */
export function modelWithId(deps: ApiDeps, group: Caller["group"], name: string): ModelEntry {
  return findAmong(usableModels(deps, group, "realtime"), name.replace(/^models\//, ""));
}

function findAmong(models: readonly ModelEntry[], id: string): ModelEntry {
  const model = models.find((m) => m.id === id);
  if (model) return model;
  throw modelNotFound(id);
}

function modelNotFound(name: string): ImgbatchError {
  const message = `models/${truncateCodePoints(name, SHOWN_NAME_CHARS, "…")} is not found for this key.`;
  return new ImgbatchError("REALTIME_MODEL_NOT_FOUND", message, { param: "model" });
}

interface Page<T> {
  entries: readonly T[];
  /** Empty on the last page. */
  next: { nextPageToken?: string };
}

/**
 * The part of a list that `pageSize` and `pageToken` ask for.
 * Throws `REALTIME_INVALID_ARGUMENT`.
 */
function pageOf<T>(all: readonly T[], request: Request, defaultSize: number): Page<T> {
  const size = readQuery(request, "PageSize") || defaultSize;
  const start = tokenNumber(request);
  if (start > all.length) throw invalidArgument("pageToken", "is not one that this list gave");
  const end = start + size;
  return { entries: all.slice(start, end), next: end < all.length ? { nextPageToken: String(end) } : {} };
}

const list = {
  method: "get",
  parameters: ["PageSize", "PageToken"],
  errors: ["REALTIME_INVALID_ARGUMENT"],
} as const;
const oneModel = {
  method: "get",
  summary: "One of them",
  parameters: ["Model"],
  errors: ["REALTIME_MODEL_NOT_FOUND"],
} as const;

/** The operations on models for clients of the vendor's API. */
export const modelOperations: readonly Operation[] = [
  {
    ...list,
    id: "listNativeModels",
    path: PATHS.nativeModels,
    summary: "Models that this key can use in real time, with sizes, ratios and prices",
    answers: { 200: { description: "A page of models.", schema: "NativeModelList" } },
    handler: (deps) => async (request, response) => {
      const { models, view } = await catalogueOf(deps, response);
      const { entries, next } = pageOf(models, request, NATIVE_PAGE);
      const list: NativeBody<"NativeModelList"> = { models: entries.map(view), ...next };
      response.json(list);
    },
  },
  {
    ...oneModel,
    id: "getNativeModel",
    path: PATHS.nativeModel,
    answers: { 200: { description: "The model.", schema: "NativeModel" } },
    handler: (deps) => async (request, response) => {
      const { models, view } = await catalogueOf(deps, response);
      response.json(view(findAmong(models, modelParameter(request))));
    },
  },
];

/** The model list of `/v1` for OpenAI clients; native clients on `/v1` get the one of `/v1beta`. */
export const sharedModelOperations: readonly Operation[] = [
  {
    ...list,
    id: "listModels",
    path: PATHS.sharedModels,
    summary: "The same models, for OpenAI clients",
    answers: { 200: { description: "A page of models.", schema: "SharedModelList" } },
    // OpenAI clients do not page, so the first page has all models.
    handler: (deps) => async (request, response) => {
      const { models, view, sharedView } = await catalogueOf(deps, response);
      const own = models.map((model) => ({ name: model.id, model }));
      const all = [...own, ...wholeNames(models, deps.modelNames)];
      const { entries, next } = pageOf(all, request, SHARED_PAGE);
      const data = entries.map(({ name, model }) => sharedView(name, model));
      const native = entries.filter(({ name, model }) => model.id === name);
      const list: NativeBody<"SharedModelList"> = {
        object: "list",
        data,
        models: native.map(({ model }) => view(model)),
        ...next,
      };
      response.json(list);
    },
  },
  {
    ...oneModel,
    id: "getModel",
    path: PATHS.sharedModel,
    answers: { 200: { description: "The model.", schema: "SharedModel" } },
    // Also a name that only stands for a model, such as `gpt-image-1`.
    handler: (deps) => async (request, response) => {
      const { models, sharedView } = await catalogueOf(deps, response);
      const name = modelParameter(request);
      const model = namedAmong(name, models, deps.modelNames);
      if (model === null) throw modelNotFound(name);
      response.json(sharedView(name, model));
    },
  },
];
