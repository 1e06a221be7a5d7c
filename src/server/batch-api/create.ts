import type { Request, Response } from "express";
import { z } from "zod";
import {
  announcedPixels,
  type BatchModel,
  batchSchemas,
  type CreateItemBody,
  type ListEnvelope,
} from "../../contract/batch-api.ts";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import {
  isImageMimeType,
  nearestRatio,
  type SizePx,
  type SizeTier,
  shownSize,
} from "../../contract/image-formats.ts";
import {
  ANNOUNCED_LIMITS,
  customIdProblem,
  expandedCustomIds,
  FIXED_LIMITS,
  generatedCustomId,
  inWords,
  type Limits,
} from "../../contract/limits.ts";
import { FIND_ONLY_HEADER, IDEMPOTENCY_REPLAYED_HEADER, PATHS } from "../../contract/routes.ts";
import { type CheckedItem, type CheckedRequest, requestHash } from "../../domain/batches/checked-request.ts";
import { type Caller, createBatch, isKnownKey, isKnownRequest } from "../../domain/batches/create-batch.ts";
import { retryFailed } from "../../domain/batches/retry-failed.ts";
import { budgetsOf } from "../../domain/billing/budget.ts";
import { isPlayMoney, priceBatchImage, rateFor } from "../../domain/billing/payer.ts";
import type { CheckedImage } from "../../domain/checked-content.ts";
import { InputImages, NO_SENT_TEXTS, receiveImage, type SentTexts } from "../../domain/images/sent-image.ts";
import {
  batchModelsOf,
  type GroupEntry,
  isPaid,
  type ModelEntry,
  type Offer,
  type OptionFacts,
  ratiosOf,
  referenceLimit,
} from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import { DEFAULT_OPTIONS } from "../../domain/ports/image-provider.ts";
import type { AccountRecord, BatchRecord } from "../../domain/records.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { createYield } from "../../kernel/pacing.ts";
import { codePointLength, hasUnstorableText, isLongerThan, truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import {
  accountOf,
  callerOf,
  consentingCaller,
  idempotencyKeyOf,
  requireBatchFeature,
} from "../http/authenticate.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { invalidQuery, readQuery } from "../http/parameters.ts";
import type { Operation } from "../operation.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import { plainFormat, shapeOf } from "../request-body/json-reader.ts";
import { findBatch, showBatch } from "./batch-view.ts";
import { checkOptions } from "./check-options.ts";

type ReferenceBody = z.infer<typeof batchSchemas.ReferenceImage>;

interface Rules {
  /** Null for an unknown model: the request is refused later, its references are still checked. */
  model: ModelEntry | null;
  limits: Limits;
  sent: SentTexts;
}

/** The reference images of each item, as they were sent. */
type SentReferences = readonly (readonly unknown[])[];

/**
 * Reads the reference images of all items and checks their count, Base64 and size; `checkImages` follows. `items` are checked
 * but for their images. Throws the code of the first failure.
 */
async function readReferences(
  sent: SentReferences,
  items: readonly CheckedItem[],
  rules: Rules,
): Promise<CheckedItem[]> {
  refuseTooMany(sent, items, rules);
  const yieldSometimes = createYield();
  let totalBytes = 0;
  const checked: CheckedItem[] = [];
  const known = new Map<string, CheckedImage>();
  for (const [i, item] of items.entries()) {
    const images: CheckedImage[] = [];
    for (const [j, body] of (sent[i] ?? []).entries()) {
      const at = `items[${i}].reference_images[${j}]`;
      const read = parseReference(body, at);
      const image = read.sha256 == null ? readReference(read, at, rules) : repeated(read, at, known);
      images.push(image);
      if (read.sha256 != null) continue;
      known.set(image.sha256, image);
      totalBytes += image.sizeBytes;
      await yieldSometimes(image.sizeBytes);
      if (totalBytes > rules.limits.referenceBytesPerBatch) {
        const mib = Math.floor(rules.limits.referenceBytesPerBatch / 1024 / 1024);
        const problem = `the reference images of the batch exceed ${mib} MiB in all`;
        throw fieldError("BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE", "items", problem);
      }
    }
    checked.push({ ...item, images });
  }
  return checked;
}

/**
 * Checks that the bytes of every reference are an image of the type that the request states. Equal bytes are decoded
 * once. Returns the size of the first image of each item; null for an item without one. Throws the code of the first failure.
 */
async function checkImages(
  items: readonly CheckedItem[],
  inspector: ImageInspector,
): Promise<(SizePx | null)[]> {
  const inputs = new InputImages(inspector);
  const sizes: (SizePx | null)[] = items.map(() => null);
  for (const [i, { images }] of items.entries()) {
    for (const [j, image] of images.entries()) {
      const at = `items[${i}].reference_images[${j}]`;
      const found = await inputs.check(image, image.mimeType);
      if ("problem" in found) {
        const fields = { type: `${at}.mime_type`, bytes: `${at}.data`, amount: at };
        throw invalidReference(fields[found.about], found.problem);
      }
      sizes[i] ??= shownSize(found);
    }
  }
  return sizes;
}

function refuseTooMany(sent: SentReferences, items: readonly CheckedItem[], { model, limits }: Rules): void {
  const perItem = model ? referenceLimit(model) : Number.POSITIVE_INFINITY;
  let total = 0;
  for (const [i, { outputCount }] of items.entries()) {
    const count = sent[i]?.length ?? 0;
    total += outputCount * count;
    if (count > perItem) {
      const isOpen = perItem === 0 && model?.maxReferenceImages === undefined;
      const way = isOpen ? " (the configuration of the service can say how many: `maxReferenceImages`)" : "";
      const problem = `has ${count} images; this model takes at most ${perItem}${way}`;
      throw fieldError("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES", `items[${i}].reference_images`, problem);
    }
  }
  if (total > limits.referenceImagesPerBatch) {
    const problem = `have ${total} reference images after expansion; at most ${limits.referenceImagesPerBatch} are allowed`;
    throw fieldError("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES", "items", problem);
  }
}

function parseReference(body: unknown, at: string): ReferenceBody {
  const parsed = batchSchemas.ReferenceImage.safeParse(body, { error: inWords });
  if (parsed.success) return parsed.data;
  throw schemaProblem(parsed.error, "BATCH_IMAGE_INVALID_REFERENCE_IMAGE", at);
}

/** Returns a reference whose bytes came earlier in the request. */
function repeated(body: ReferenceBody, at: string, known: ReadonlyMap<string, CheckedImage>): CheckedImage {
  const earlier = known.get((body.sha256 ?? "").toLowerCase());
  if (body.data != null) throw invalidReference(`${at}.sha256`, "cannot be given together with `data`");
  if (earlier === undefined)
    throw invalidReference(`${at}.sha256`, "no earlier reference of this request has these bytes");
  if (body.mime_type != null && body.mime_type !== earlier.mimeType)
    throw invalidReference(`${at}.mime_type`, `the earlier reference is ${earlier.mimeType}; leave it out`);
  return { ...earlier, ...tagsOf(body, at) };
}

function tagsOf(body: ReferenceBody, at: string): Pick<CheckedImage, "id" | "type"> {
  const { referenceIdChars, referenceTypeChars } = FIXED_LIMITS;
  return {
    id: checkTag(body.id, `${at}.id`, referenceIdChars),
    type: checkTag(body.type, `${at}.type`, referenceTypeChars),
  };
}

function readReference(body: ReferenceBody, at: string, rules: Rules): CheckedImage {
  const { mime_type: mimeType, data } = body;
  if (body.storage_uri != null) throw invalidReference(`${at}.storage_uri`, "is not taken; send `data`");
  if (mimeType == null) throw invalidReference(`${at}.mime_type`, "is required: the type of the image");
  if (!isImageMimeType(mimeType)) {
    throw invalidReference(`${at}.mime_type`, "must be image/png, image/jpeg or image/webp");
  }
  if (data == null || data === "")
    throw invalidReference(`${at}.data`, "is required: the Base64 of the image");
  const maxBytes = rules.limits.referenceImageBytes;
  const image = receiveImage(data, { maxBytes, base64: "strict", sent: rules.sent });
  if (typeof image === "string") throw invalidReference(`${at}.data`, image);
  return { ...image, ...tagsOf(body, at), mimeType };
}

function checkTag(text: string | null | undefined, at: string, maxChars: number): string | null {
  if (text == null) return null;
  if (isLongerThan(text, maxChars) || hasUnstorableText(text)) {
    throw invalidReference(at, `must be text of at most ${maxChars} characters`);
  }
  return text;
}

function invalidReference(param: string, problem: string): ImgbatchError {
  return fieldError("BATCH_IMAGE_INVALID_REFERENCE_IMAGE", param, problem);
}

interface RequestRules {
  limits: Limits;
  models: readonly ModelEntry[];
  group: GroupEntry;
  inspector: ImageInspector;
  /** Images of a large body, which were taken out of it: see `SentTexts`. Default: none. */
  sent?: SentTexts;
  /** Whether the same request, known by its hash, was accepted before: then its images are not decoded again. */
  isKnown?: (hash: string) => Promise<boolean>;
  /** Returns what the provider of a model makes of it; null when no provider serves it. */
  optionsOf: (model: ModelEntry, provider: string | null) => OptionFacts | null;
  /** The quality that an item has anyway, so that it asks for nothing. Default: that of the model. */
  usualQuality?: string | undefined;
}

/**
 * References are only counted here; their own problems are reported after those of the items. Metadata is checked by
 * hand, because the schema would lose a key called `__proto__`.
 */
const bodySchema = batchSchemas.CreateBatch.extend({
  metadata: z.unknown().optional(),
  items: z
    .array(
      batchSchemas.CreateItem.extend({
        reference_images: z.array(z.unknown()).nullish(),
        options: z.unknown().optional(),
      }),
    )
    .min(1, "needs at least one item"),
});

/**
 * Checks and normalises the body of a create request. The order is fixed and the first failure is answered:
 * model present, items and fields, duplicate ids, prompt lengths, references, images in all, model known.
 */
export async function checkRequest(body: unknown, rules: RequestRules): Promise<CheckedRequest> {
  const modelId = (body as { model?: unknown } | null)?.model;
  if (typeof modelId !== "string" || modelId === "") {
    throw fieldError(
      "BATCH_IMAGE_INVALID_MODEL",
      "model",
      "is required: name a model from the batch model list",
    );
  }
  // Before the schema: it would describe every wrong element of a list of millions.
  const given = (body as { items?: unknown }).items;
  if (Array.isArray(given) && given.length > rules.limits.itemsPerBatch) {
    throw invalid("items", `has ${given.length} items; a batch takes at most ${rules.limits.itemsPerBatch}`);
  }
  const parsed = bodySchema.safeParse(body, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error, "BATCH_IMAGE_INVALID_ITEMS");
  const request = parsed.data;
  const { limits } = rules;
  if (request.image_size != null && request.image_size !== "1K") {
    throw invalid("image_size", "batches make only `1K` images");
  }
  const mimeType = request.response_mime_type ?? "image/png";
  if (!isImageMimeType(mimeType)) {
    throw invalid("response_mime_type", "must be image/png, image/jpeg or image/webp");
  }
  const metadata = checkMetadata(request.metadata);
  const taskName = checkTaskName(request.task_name ?? null);
  const model = rules.models.find((m) => m.id === modelId) ?? null;
  const facts = model && rules.optionsOf(model, request.provider ?? null);
  const { usualQuality = facts?.defaultQuality } = rules;
  const defaults = { ...DEFAULT_OPTIONS, mimeType };
  const items = request.items.map((item, i) => {
    const checked = checkItem(item, i, limits);
    const { outputCount } = checked;
    const asked = { facts, defaults, limits, outputCount, usualQuality };
    return { ...checked, options: checkOptions(item.options, `items[${i}]`, asked) };
  });
  refuseDuplicateIds(items);
  items.forEach((item, i) => {
    if (!isLongerThan(item.prompt, limits.promptChars)) return;
    const most = limits.promptChars;
    // Only the beginning of a far longer prompt was kept.
    const length = isLongerThan(item.prompt, 2 * most) ? `over ${2 * most}` : codePointLength(item.prompt);
    const problem = `has ${length} characters; at most ${most} are allowed`;
    throw fieldError("BATCH_IMAGE_PROMPT_TOO_LONG", `items[${i}].prompt`, problem);
  });
  const { sent = NO_SENT_TEXTS } = rules;
  const references = request.items.map(({ reference_images }) => reference_images ?? []);
  const checkedItems = await readReferences(references, items, { model, limits, sent });
  const asked = {
    modelId,
    taskName,
    parentBatchId: request.parent_batch_id ?? null,
    mimeType,
    metadata,
    provider: request.provider ?? null,
    items: checkedItems,
  };
  const hash = requestHash(asked);
  // The batch of a known request is there: its images need not be decoded.
  const sizes = (await rules.isKnown?.(hash)) ? [] : await checkImages(checkedItems, rules.inspector);
  const images = items.reduce((sum, item) => sum + item.outputCount, 0);
  if (images > limits.outputImagesPerBatch) {
    const problem = `ask for ${images} images; a batch makes at most ${limits.outputImagesPerBatch}`;
    throw fieldError("BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES", "items", problem);
  }
  if (!model || !batchModelsOf(rules.group, rules.models).includes(model)) {
    throw fieldError("BATCH_IMAGE_INVALID_MODEL", "model", "is not in the batch model list of this key");
  }
  const { modelId: _, ...checked } = asked;
  const shapes = facts ?? { ratios: ratiosOf(model) };
  const shaped = checkedItems.map((item, i) => {
    const size = sizes[i] ?? null;
    const { options } = item;
    if (size === null || !options.keepsRatio) return item;
    return { ...item, options: { ...options, ratio: nearestRatio(size, shapes) } };
  });
  return { ...checked, items: shaped, model, hash };
}

/** Checks an item but for its reference images and its options, which follow. */
function checkItem(
  item: Omit<CreateItemBody, "reference_images" | "options">,
  index: number,
  limits: Limits,
): Omit<CheckedItem, "options"> {
  const refuse = (field: string, problem: string) => invalid(`items[${index}].${field}`, problem);
  const prompt = item.prompt.trim();
  if (prompt === "") throw refuse("prompt", "must not be empty");
  if (hasUnstorableText(prompt)) throw refuse("prompt", "must not hold NUL or half of a surrogate pair");
  const outputCount = item.output_count ?? 1;
  if (outputCount < 1 || outputCount > limits.outputCountPerItem) {
    throw refuse("output_count", `must be 1 to ${limits.outputCountPerItem}`);
  }
  const problem = item.custom_id == null ? null : customIdProblem(item.custom_id);
  if (problem) throw refuse("custom_id", problem);
  return {
    customId: item.custom_id ?? generatedCustomId(index + 1),
    prompt,
    earlier: "",
    outputCount,
    images: [],
  };
}

function refuseDuplicateIds(items: readonly { customId: string; outputCount: number }[]): void {
  const seen = new Map<string, number>();
  items.forEach((item, i) => {
    for (const id of expandedCustomIds(item.customId, item.outputCount)) {
      const first = seen.get(id);
      if (first !== undefined) {
        const problem = `\`${id}\` is also an id of items[${first}]`;
        throw fieldError("BATCH_IMAGE_DUPLICATE_CUSTOM_ID", `items[${i}].custom_id`, problem);
      }
      seen.set(id, i);
    }
  });
}

function checkTaskName(name: string | null): string | null {
  if (name === null) return null;
  if (hasUnstorableText(name)) {
    throw invalid("task_name", "must not hold NUL or half of a surrogate pair");
  }
  return truncateCodePoints(name.trim(), FIXED_LIMITS.taskNameChars) || null;
}

/** Metadata within its limits; null when there is none. Throws `BATCH_IMAGE_INVALID_ITEMS`. */
function checkMetadata(metadata: unknown): Record<string, string> | null {
  if (metadata === null || metadata === undefined) return null;
  if (typeof metadata !== "object" || Array.isArray(metadata)) {
    throw invalid("metadata", "must be an object of texts");
  }
  const pairs = Object.entries(metadata as Record<string, unknown>);
  const { metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  if (pairs.length > metadataPairs) throw invalid("metadata", `has more than ${metadataPairs} pairs`);
  for (const [key, value] of pairs) {
    if (key === "" || isLongerThan(key, metadataKeyChars)) {
      throw invalid("metadata", `a key must have 1 to ${metadataKeyChars} characters`);
    }
    if (typeof value !== "string") throw invalid(`metadata.${key}`, "must be text");
    if (isLongerThan(value, metadataValueChars)) {
      throw invalid(`metadata.${key}`, `must have at most ${metadataValueChars} characters`);
    }
    if (hasUnstorableText(key) || hasUnstorableText(value)) {
      throw invalid("metadata", "must not hold NUL or half of a surrogate pair");
    }
  }
  return metadata as Record<string, string>;
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("BATCH_IMAGE_INVALID_ITEMS" satisfies ServiceErrorCode, param, problem);
}

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
      const name = readQuery(request, "Provider") ?? null;
      const names = deps.offers.providerNames;
      if (name !== null && !names.includes(name))
        throw invalidQuery("provider", `must be one of ${names.join(", ")}`);
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
      const caller = consentingCaller(request, response, "BATCH_IMAGE_INVALID_ITEMS");
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
        response.status(200).json(await showBatch(deps, caller, batch));
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
      const caller = consentingCaller(request, response, "BATCH_IMAGE_INVALID_ITEMS");
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
      const customIds = hasBody(request) ? await readCustomIds(deps, request, response) : null;
      const { consentMicroUsd } = caller;
      const { batch, replayed } = await retryFailed(deps, id, { idempotencyKey, consentMicroUsd, customIds });
      if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
      else deps.onBatchCreated(batch);
      response.json(await showBatch(deps, caller, batch));
    },
  },
];
