import type { Request, Response } from "express";
import {
  announcedPixels,
  type BatchModel,
  batchSchemas,
  type ListEnvelope,
} from "../../contract/batch-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import type { SizeTier } from "../../contract/image-formats.ts";
import { ANNOUNCED_LIMITS, inWords } from "../../contract/limits.ts";
import { FIND_ONLY_HEADER, IDEMPOTENCY_REPLAYED_HEADER, PATHS } from "../../contract/routes.ts";
import { type Caller, createBatch, isKnownKey, isKnownRequest } from "../../domain/batches/create-batch.ts";
import { retryFailed } from "../../domain/batches/retry-failed.ts";
import { budgetsOf } from "../../domain/billing/budget.ts";
import { isPlayMoney, priceBatchImage, rateFor } from "../../domain/billing/payer.ts";
import {
  batchModelsOf,
  type GroupEntry,
  isPaid,
  type ModelEntry,
  type Offer,
  type OptionFacts,
  referenceLimit,
} from "../../domain/models.ts";
import type { AccountRecord, BatchRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import {
  accountOf,
  callerOf,
  consentingCaller,
  idempotencyKeyOf,
  requireBatchFeature,
} from "../http/authenticate.ts";
import { schemaProblem } from "../http/errors.ts";
import { queryChoice } from "../http/query.ts";
import type { Operation } from "../operation.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import { plainFormat, shapeOf } from "../request-body/json-value.ts";
import { findBatch, showBatch } from "./batch-view.ts";
import { checkRequest, type RequestRules } from "./check-request.ts";

/** Returns an entry of the batch model list; null for a model without a price. `facts`: what a batch may ask for. */
function batchModel(
  model: ModelEntry,
  offer: Offer,
  facts: OptionFacts,
  { group, account }: { group: GroupEntry; account: AccountRecord },
): BatchModel | null {
  const { provider } = offer;
  const priceFor = (size: SizeTier, quality: string | null) => {
    const price = priceBatchImage(model, group, rateFor(offer, account), {
      size,
      quality,
      kind: provider.kind,
    });
    if (price === null) return null;
    const { imageMicroUsd, holdMicroUsd } = price;
    return { batch_image: microsToNumber(imageMicroUsd), batch_hold: microsToNumber(holdMicroUsd) };
  };
  const price = priceFor("1K", null);
  if (price === null) return null;
  const qualities = facts.qualities.length === 0 ? [null] : facts.qualities;
  const shapes = facts.tiers.flatMap((size) => qualities.map((quality) => ({ size, quality })));
  return {
    id: model.id,
    object: "image.batch.model",
    provider: provider.name,
    max_reference_images: referenceLimit(model),
    pricing: {
      currency: "usd",
      ...price,
      ...(isPaid(provider) ? { paid: true } : {}),
      ...(isPlayMoney(offer, account) ? { play_money: true } : {}),
    },
    options: {
      aspect_ratio: [...facts.ratios],
      image_size: [...facts.tiers],
      pixels: announcedPixels(facts.pixels),
      quality: [...facts.qualities],
      default_quality: facts.defaultQuality,
      background: [...facts.backgrounds],
      seed: facts.seed,
      max_seed: facts.maxSeed,
      negative_prompt: facts.negativePrompt,
    },
    prices: shapes.flatMap(({ size, quality }) => {
      const found = priceFor(size, quality);
      return found === null ? [] : [{ image_size: size, quality, ...found }];
    }),
  };
}

/**
 * Returns the batch that the same request made before, whatever the models take by now, and whatever their default quality
 * is; null when there is none. Its request was checked then.
 */
async function knownBatch(
  { stores }: Pick<ApiDeps, "stores">,
  caller: Caller,
  { value, rules, idempotencyKey }: { value: unknown; rules: RequestRules; idempotencyKey: string | null },
): Promise<BatchRecord | null> {
  const known =
    idempotencyKey === null ? null : await stores.read.idempotency.find(caller.key.id, idempotencyKey);
  if (known == null) return null;
  let isSame = false;
  for (const usualQuality of [undefined, ...qualitiesIn(value)]) {
    const asThen: RequestRules = {
      ...rules,
      models: [],
      optionsOf: () => null,
      usualQuality,
      isKnown: async (hash) => {
        isSame ||= hash === known.requestHash;
        // Its images were decoded then.
        return true;
      },
    };
    await checkRequest(value, asThen).catch(() => {});
    if (isSame) break;
  }
  const batch = isSame ? await stores.read.batches.byId(known.batchId) : null;
  return batch && batch.recordDeletedAtMs === null ? batch : null;
}

/** No model has more qualities. */
const MOST_QUALITIES = 8;

/** Returns the qualities that the items of a request name, each once. */
function qualitiesIn(value: unknown): string[] {
  const found = new Set<string>();
  const { items } = value as { items?: unknown };
  for (const item of Array.isArray(items) ? items : []) {
    const quality: unknown = item?.options?.quality;
    if (typeof quality === "string") found.add(quality);
    if (found.size === MOST_QUALITIES) break;
  }
  return [...found];
}

const SHAPE = shapeOf(batchSchemas.CreateBatch, {
  "items[].prompt": "prompt",
  "items[].reference_images[].data": "image",
  "items[].options": "any",
});

function codeOf(param: string): ServiceErrorCode {
  if (param === "model") return "BATCH_IMAGE_INVALID_MODEL";
  return param.includes(".reference_images[")
    ? "BATCH_IMAGE_INVALID_REFERENCE_IMAGE"
    : "BATCH_IMAGE_INVALID_ITEMS";
}

const RETRY_SHAPE = shapeOf(batchSchemas.RetryBatch);

function hasBody(request: Request): boolean {
  return request.get("transfer-encoding") !== undefined || Number(request.get("content-length") ?? 0) > 0;
}

function readCustomIds(deps: ApiDeps, request: Request, response: Response): Promise<string[] | null> {
  const format = plainFormat(RETRY_SHAPE, "BATCH_IMAGE_INVALID_ITEMS");
  const options = { ...deps, maxBytes: deps.limits.createBodyBytes, format, images: null };
  return withJsonBody(request, response, options, async ({ value }) => {
    const parsed = batchSchemas.RetryBatch.safeParse(value, { error: inWords });
    if (!parsed.success) throw schemaProblem(parsed.error, "BATCH_IMAGE_INVALID_ITEMS");
    return parsed.data.custom_ids ?? null;
  });
}

/** Switching batches off stops new ones; finished results stay reachable. */
const makesBatches = [requireBatchFeature];

/** The errors of reading a JSON body. */
const bodyErrors: readonly ServiceErrorCode[] = [
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TIMEOUT",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
];

/** The errors of everything that makes a batch. */
const makeErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_DISABLED",
  "BATCH_IMAGE_INVALID_MODEL",
  "BATCH_IMAGE_INVALID_ITEMS",
  "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
  "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES",
  "BATCH_IMAGE_IDEMPOTENCY_CONFLICT",
  "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING",
  "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE",
  "BATCH_IMAGE_QUEUE_FAILED",
  "BATCH_IMAGE_INSUFFICIENT_BALANCE",
];

/** Making a batch, and what it can be made with. */
export const createOperations: readonly Operation[] = [
  {
    id: "listBatchModels",
    method: "get",
    path: PATHS.batchModels,
    summary: "Models that this key can use in batches, with prices",
    parameters: ["Provider"],
    answers: { 200: { description: "The models.", schema: "BatchModelList" } },
    errors: ["BATCH_IMAGE_DISABLED", "BATCH_IMAGE_INVALID_QUERY"],
    guards: makesBatches,
    handler: (deps) => async (request, response) => {
      const { group } = callerOf(response);
      const account = await accountOf(deps, response);
      const name = queryChoice(request, "provider", deps.offers.providerNames) ?? null;
      const data = batchModelsOf(group, deps.models).flatMap((model) => {
        const offer = deps.offers.first(model.id, undefined, name);
        const facts = deps.offers.optionsFor(model, name);
        return (offer && facts && batchModel(model, offer, facts, { group, account })) ?? [];
      });
      const envelope: ListEnvelope<BatchModel> = { object: "list", data, has_more: false, next_cursor: null };
      const limits = Object.fromEntries(
        Object.entries(ANNOUNCED_LIMITS).map(([field, name]) => [field, deps.limits[name]]),
      );
      const payer = account.isPlay ? (account.realAccountId ?? account.id) : account.id;
      const budgets = (await budgetsOf(deps.stores.read, payer, deps.clock.nowMs())).map(
        ({ upstream, per, limitMicroUsd, leftMicroUsd }) => {
          return { upstream, per, usd: microsToNumber(limitMicroUsd), left: microsToNumber(leftMicroUsd) };
        },
      );
      response.json({ ...envelope, limits, ...(budgets.length > 0 && { budgets }) });
    },
  },
  {
    id: "createBatch",
    method: "post",
    path: PATHS.batches,
    summary: "Create a batch",
    parameters: ["IdempotencyKey", "MaxCost", "FindOnly"],
    body: "CreateBatch",
    answers: {
      200: {
        description: "The batch was accepted, or is the one that the same `Idempotency-Key` made before.",
        schema: "Batch",
        headers: ["IdempotencyReplayed"],
      },
    },
    errors: [
      ...bodyErrors,
      "BATCH_IMAGE_DUPLICATE_CUSTOM_ID",
      "BATCH_IMAGE_PROMPT_TOO_LONG",
      "BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE",
      "BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES",
      "BATCH_IMAGE_NOT_FOUND",
      ...makeErrors,
    ],
    guards: makesBatches,
    handler: (deps) => async (request, response) => {
      const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
      const { limits, bodyBudgets, blobs } = deps;
      const images = { base64: "strict", maxBytes: limits.referenceImageBytes, blobs } as const;
      const format = {
        shape: SHAPE,
        prompts: limits.itemsPerBatch,
        images: limits.referenceImagesPerBatch,
        promptChars: limits.promptChars,
        code: codeOf,
      };
      const options = { bodyBudgets, maxBytes: limits.createBodyBytes, format, images };
      const { batch, replayed } = await withJsonBody(request, response, options, async ({ value, sent }) => {
        const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
        const isFindOnly = request.get(FIND_ONLY_HEADER) === "true";
        if (isFindOnly && !(await isKnownKey(deps.stores.read, caller, idempotencyKey)))
          throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND", "No batch was made with this Idempotency-Key.");
        const { models, inspector } = deps;
        const rules: RequestRules = {
          limits,
          models,
          group: caller.group,
          inspector,
          sent,
          optionsOf: (model, name) => deps.offers.optionsFor(model, name),
          isKnown: (hash) => isKnownRequest(deps.stores.read, caller, idempotencyKey, hash),
        };
        try {
          const checked = await checkRequest(value, rules);
          return await createBatch(deps, caller, checked, idempotencyKey);
        } catch (error) {
          const isOfRequest = error instanceof ImgbatchError;
          const known = isOfRequest ? await knownBatch(deps, caller, { value, rules, idempotencyKey }) : null;
          if (known === null) throw error;
          return { batch: known, replayed: true };
        }
      });
      if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
      try {
        response.status(200).json(await showBatch(deps, batch));
      } finally {
        // The caller need not wait for what the workers do first.
        if (!replayed) deps.onBatchCreated(batch);
      }
    },
  },
  {
    id: "retryBatch",
    method: "post",
    path: PATHS.retry,
    summary: "Make the failed items of an ended batch again, as a new batch; refused prompts are left out",
    parameters: ["BatchId", "IdempotencyKey", "MaxCost"],
    body: "RetryBatch",
    isBodyOptional: true,
    answers: {
      200: {
        description: "The new batch; its parent is the first ancestor.",
        schema: "Batch",
        headers: ["IdempotencyReplayed"],
      },
    },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_NOT_READY", ...bodyErrors, ...makeErrors],
    guards: makesBatches,
    handler: (deps) => async (request, response) => {
      const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
      const customIds = hasBody(request) ? await readCustomIds(deps, request, response) : null;
      const { consentMicroUsd } = caller;
      const { batch, replayed } = await retryFailed(deps, id, { idempotencyKey, consentMicroUsd, customIds });
      if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
      else deps.onBatchCreated(batch);
      response.json(await showBatch(deps, batch));
    },
  },
];
