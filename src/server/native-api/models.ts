import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type {
  NativeModel,
  NativeModelList,
  SharedModel,
  SharedModelList,
} from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { isPlayMoney, priceRealtimeImage, rateFor } from "../../domain/billing/payer.ts";
import {
  batchModelsOf,
  type GroupEntry,
  isPaid,
  MAX_INPUT_IMAGES,
  type ModelEntry,
  pricedSizes,
  ratiosOf,
  realtimeModelsOf,
} from "../../domain/models.ts";
import type { AccountRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { accountOf, callerOf } from "../http/authenticate.ts";
import { type Page, pageOf } from "../http/query.ts";
import { modelNamed, wholeNames } from "../openai/model-names.ts";
import type { Operation } from "../operation.ts";
import { modelParameter } from "./paths.ts";

const INPUT_TOKENS = 131_072;
const OUTPUT_TOKENS = 32_768;

/** A model as the native API describes it, with what an image costs this group now. */
function nativeModelView(
  model: ModelEntry,
  group: GroupEntry,
  { rateMultiplier, isPaid, isPlay }: { rateMultiplier: number; isPaid: boolean; isPlay: boolean },
): NativeModel {
  const sizes = pricedSizes(model);
  const images = sizes.map((size) => [
    size,
    microsToNumber(priceRealtimeImage(model, size, group, rateMultiplier) ?? 0),
  ]);
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
    pricing: {
      currency: "usd",
      images: Object.fromEntries(images),
      ...(isPaid ? { paid: true } : {}),
      ...(isPlay ? { play_money: true } : {}),
    },
  };
}

/** A model under one of its names, also with the fields that OpenAI clients read. Its time of creation is not known. */
function sharedModelView(name: string, native: NativeModel): SharedModel {
  return { id: name, object: "model", created: 0, owned_by: "imgbatch", ...native };
}

/** Of a name that is not known, in an error. */
const SHOWN_NAME_CHARS = 100;
const NATIVE_PAGE = 50;
const SHARED_PAGE = 1000;

/** `GET /v1beta/models`: the models that this key can use, page by page. */
function nativeModels(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const account = await accountOf(deps, response);
    const { entries, next } = page(deps, request, response, NATIVE_PAGE);
    const list: NativeModelList = {
      models: entries.map((model) => view(deps, response, account, model)),
      ...next,
    };
    response.json(list);
  };
}

/** `GET /v1beta/models/{model}`: one model of the list. */
function nativeModel(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const account = await accountOf(deps, response);
    response.json(view(deps, response, account, findAmong(listed(deps, response), request)));
  };
}

/**
 * `GET /v1/models`: one response for two kinds of clients. OpenAI clients do not page, so the first page has all models.
 */
function sharedModels(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const account = await accountOf(deps, response);
    const { entries, next } = pageOf(listedByName(deps, response), request, SHARED_PAGE);
    const data = entries.map(({ name, model }) => sharedView(deps, response, account, name, model));
    const models = entries
      .filter(({ name, model }) => model.id === name)
      .map(({ model }) => view(deps, response, account, model));
    const list: SharedModelList = { object: "list", data, models, ...next };
    response.json(list);
  };
}

/** `GET /v1/models/{model}`: also a name that only stands for a model, such as `gpt-image-1`. */
function sharedModel(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const account = await accountOf(deps, response);
    const name = modelParameter(request);
    const model = modelNamed(name, listed(deps, response), deps.modelNames);
    if (model === null) throw modelNotFound(name);
    response.json(sharedView(deps, response, account, name, model));
  };
}

/**
 * The model of the path, when the caller may use it. A model without a provider is a later and different error.
 * Throws `REALTIME_MODEL_NOT_FOUND`.
 */
export function findModel(deps: ApiDeps, request: Request, response: Response): ModelEntry {
  return findAmong(realtimeModelsOf(callerOf(response).group, deps.models), request);
}

/**
 * The same for batch jobs: a model with at least one price that makes batches. Throws `REALTIME_MODEL_NOT_FOUND`.
 */
export function findBatchModel(deps: ApiDeps, request: Request, response: Response): ModelEntry {
  const models = batchModelsOf(callerOf(response).group, deps.models);
  return findAmong(
    models.filter((model) => pricedSizes(model).length > 0),
    request,
  );
}

function findAmong(models: readonly ModelEntry[], request: Request): ModelEntry {
  const id = modelParameter(request);
  const model = models.find((m) => m.id === id);
  if (model) return model;
  throw modelNotFound(id);
}

export function modelNotFound(name: string): ImgbatchError {
  const message = `models/${truncateCodePoints(name, SHOWN_NAME_CHARS, "…")} is not found for this key.`;
  return new ImgbatchError("REALTIME_MODEL_NOT_FOUND", message, { param: "model" });
}

/** The models that the caller may use and that a provider serves now. */
function listed(deps: ApiDeps, response: Response): ModelEntry[] {
  const models = realtimeModelsOf(callerOf(response).group, deps.models);
  return models.filter((model) => deps.realtimeOffers.first(model.id) !== null);
}

/** The same by their ids, and then by the other names that stand for them. */
function listedByName(deps: ApiDeps, response: Response): { name: string; model: ModelEntry }[] {
  const models = listed(deps, response);
  return [...models.map((model) => ({ name: model.id, model })), ...wholeNames(models, deps.modelNames)];
}

function sharedView(
  deps: ApiDeps,
  response: Response,
  account: AccountRecord,
  name: string,
  model: ModelEntry,
): SharedModel {
  return sharedModelView(name, view(deps, response, account, model));
}

function page(deps: ApiDeps, request: Request, response: Response, size: number): Page<ModelEntry> {
  return pageOf(listed(deps, response), request, size);
}

function view(deps: ApiDeps, response: Response, account: AccountRecord, model: ModelEntry) {
  const offer = deps.realtimeOffers.first(model.id);
  const rateMultiplier = offer === null ? 1 : rateFor(offer, account);
  return nativeModelView(model, callerOf(response).group, {
    rateMultiplier,
    isPaid: offer !== null && isPaid(offer.provider),
    isPlay: offer !== null && isPlayMoney(offer, account),
  });
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
    handler: nativeModels,
  },
  {
    ...oneModel,
    id: "getNativeModel",
    path: PATHS.nativeModel,
    answers: { 200: { description: "The model.", schema: "NativeModel" } },
    handler: nativeModel,
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
    handler: sharedModels,
  },
  {
    ...oneModel,
    id: "getModel",
    path: PATHS.sharedModel,
    answers: { 200: { description: "The model.", schema: "SharedModel" } },
    handler: sharedModel,
  },
];
