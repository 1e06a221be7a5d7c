import { z } from "zod";
import { batchSchemas } from "../../contract/batch-api.ts";
import type { ImgbatchError, ServiceErrorCode } from "../../contract/errors.ts";
import { isImageMimeType, nearestRatio, type SizePx, shownSize } from "../../contract/image-formats.ts";
import {
  customIdProblem,
  expandedCustomIds,
  FIXED_LIMITS,
  generatedCustomId,
  inWords,
  type Limits,
} from "../../contract/limits.ts";
import {
  type CheckedItem,
  type CheckedReference,
  type CheckedRequest,
  requestHash,
} from "../../domain/batches/checked-request.ts";
import { InputImages, NO_SENT_TEXTS, receiveImage, type SentTexts } from "../../domain/images/sent-image.ts";
import {
  batchModelsOf,
  type GroupEntry,
  type ModelEntry,
  type OptionFacts,
  ratiosOf,
  referenceLimit,
} from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import { createYield } from "../../kernel/pacing.ts";
import { codePointLength, hasUnstorableText, isLongerThan, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { checkOptions } from "./check-options.ts";

type ReferenceBody = z.infer<typeof batchSchemas.ReferenceImage>;

/** An item of which all but the references is checked. */
interface ReadItem extends Omit<CheckedItem, "references"> {
  referenceBodies: readonly unknown[];
}

interface Rules {
  /** Null for an unknown model: the request is refused later, its references are still checked. */
  model: ModelEntry | null;
  limits: Limits;
  sent: SentTexts;
}

/**
 * Reads the reference images of all items and checks their count, Base64 and size; `checkImages` follows. Throws the
 * code of the first failure.
 */
async function readReferences(items: readonly ReadItem[], rules: Rules): Promise<CheckedItem[]> {
  refuseTooMany(items, rules);
  const yieldSometimes = createYield();
  let totalBytes = 0;
  const checked: CheckedItem[] = [];
  const known = new Map<string, CheckedReference>();
  for (const [i, { referenceBodies, ...item }] of items.entries()) {
    const references: CheckedReference[] = [];
    for (const [j, body] of referenceBodies.entries()) {
      const at = `items[${i}].reference_images[${j}]`;
      const read = parseReference(body, at);
      const reference = read.sha256 == null ? readReference(read, at, rules) : repeated(read, at, known);
      references.push(reference);
      if (read.sha256 != null) continue;
      known.set(reference.image.sha256, reference);
      totalBytes += reference.image.sizeBytes;
      await yieldSometimes(reference.image.sizeBytes);
      if (totalBytes > rules.limits.referenceBytesPerBatch) {
        const mib = Math.floor(rules.limits.referenceBytesPerBatch / 1024 / 1024);
        const problem = `the reference images of the batch exceed ${mib} MiB in all`;
        throw fieldError("BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE", "items", problem);
      }
    }
    checked.push({ ...item, references });
  }
  return checked;
}

/**
 * Checks that the bytes of every reference are an image of the type that the request states. Equal bytes are decoded
 * once. Returns the size of the first image of each item; null for an item without one. Throws the code of the first failure.
 */
async function checkImages(
  items: readonly { references: readonly CheckedReference[] }[],
  inspector: ImageInspector,
): Promise<(SizePx | null)[]> {
  const images = new InputImages(inspector);
  const sizes: (SizePx | null)[] = items.map(() => null);
  for (const [i, { references }] of items.entries()) {
    for (const [j, reference] of references.entries()) {
      const { image, mimeType } = reference;
      const at = `items[${i}].reference_images[${j}]`;
      const found = await images.check(image, mimeType);
      if ("problem" in found) {
        const fields = { type: `${at}.mime_type`, bytes: `${at}.data`, amount: at };
        throw invalidReference(fields[found.about], found.problem);
      }
      sizes[i] ??= shownSize(found);
    }
  }
  return sizes;
}

function refuseTooMany(items: readonly ReadItem[], { model, limits }: Rules): void {
  const perItem = model ? referenceLimit(model) : Number.POSITIVE_INFINITY;
  let total = 0;
  for (const [i, { outputCount, referenceBodies }] of items.entries()) {
    total += outputCount * referenceBodies.length;
    if (referenceBodies.length > perItem) {
      const problem = `has ${referenceBodies.length} images; this model takes at most ${perItem}`;
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
function repeated(
  body: ReferenceBody,
  at: string,
  known: ReadonlyMap<string, CheckedReference>,
): CheckedReference {
  const earlier = known.get((body.sha256 ?? "").toLowerCase());
  if (body.data != null) throw invalidReference(`${at}.sha256`, "cannot be given together with `data`");
  if (earlier === undefined)
    throw invalidReference(`${at}.sha256`, "no earlier reference of this request has these bytes");
  if (body.mime_type != null && body.mime_type !== earlier.mimeType)
    throw invalidReference(`${at}.mime_type`, `the earlier reference is ${earlier.mimeType}; leave it out`);
  return { ...earlier, ...tagsOf(body, at) };
}

function tagsOf(body: ReferenceBody, at: string): Pick<CheckedReference, "id" | "type"> {
  const { referenceIdChars, referenceTypeChars } = FIXED_LIMITS;
  return {
    id: checkTag(body.id, `${at}.id`, referenceIdChars),
    type: checkTag(body.type, `${at}.type`, referenceTypeChars),
  };
}

function readReference(body: ReferenceBody, at: string, rules: Rules): CheckedReference {
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
  return { ...tagsOf(body, at), mimeType, image, sha256: image.sha256 };
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

export interface RequestRules {
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
  const items = request.items.map((item, i) => {
    const checked = checkItem(item, i, limits);
    const { outputCount } = checked;
    const terms = checkOptions(item.options, `items[${i}]`, {
      facts,
      mimeType,
      limits,
      outputCount,
      usualQuality,
    });
    return { ...checked, terms };
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
  const checkedItems = await readReferences(items, { model, limits, sent });
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
    if (size === null || item.terms.ratio !== null) return item;
    return { ...item, terms: { ...item.terms, ratio: nearestRatio(size, shapes), keepsRatio: true } };
  });
  return { ...checked, items: shaped, model, hash };
}

type ItemBody = z.infer<typeof bodySchema>["items"][number];

function checkItem(item: ItemBody, index: number, limits: Limits): Omit<ReadItem, "terms"> {
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
    outputCount,
    referenceBodies: item.reference_images ?? [],
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
