import { z } from "zod";
import { batchSchemas } from "../../contract/batch-api.ts";
import type { ImgbatchError, ServiceErrorCode } from "../../contract/errors.ts";
import { isImageMimeType } from "../../contract/image-formats.ts";
import {
  customIdProblem,
  expandedCustomIds,
  FIXED_LIMITS,
  generatedCustomId,
  inWords,
  type Limits,
} from "../../contract/limits.ts";
import { type CheckedRequest, requestHash } from "../../domain/batches/checked-request.ts";
import { NO_SENT_TEXTS, type SentTexts } from "../../domain/images/sent-image.ts";
import {
  batchModelsOf,
  type GroupEntry,
  type ModelEntry,
  nearestRatio,
  type OptionFacts,
} from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import { codePointLength, hasUnstorableText, isLongerThan, truncateCodePoints } from "../../kernel/text.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { checkOptions } from "./check-options.ts";
import { checkImages, type ReadItem, readReferences } from "./check-references.ts";

interface RequestRules {
  limits: Limits;
  models: readonly ModelEntry[];
  group: GroupEntry;
  inspector: ImageInspector;
  /** A `storage_uri` must begin with one of these; none are taken when it is empty. */
  storageUriPrefixes: readonly string[];
  /** Images of a large body, which were taken out of it: see `SentTexts`. Default: none. */
  sent?: SentTexts;
  /** Whether the same request, known by its hash, was accepted before: then its images are not decoded again. */
  isKnown?: (hash: string) => Promise<boolean>;
  /** Returns what the provider of a model makes of it; null when no provider serves it now. */
  optionsOf: (model: ModelEntry) => OptionFacts | null;
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
  const facts = model && rules.optionsOf(model);
  const items = request.items.map((item, i) => {
    const terms = checkOptions(item.options, `items[${i}]`, { facts, mimeType, limits });
    return { ...checkItem(item, i, limits), terms };
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
  const { sent = NO_SENT_TEXTS, storageUriPrefixes } = rules;
  const checkedItems = await readReferences(items, { model, limits, storageUriPrefixes, sent });
  const asked = {
    modelId,
    taskName,
    parentBatchId: request.parent_batch_id ?? null,
    mimeType,
    metadata,
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
  const shaped = checkedItems.map((item, i) => {
    const size = sizes[i] ?? null;
    if (size === null || item.terms.ratio !== null) return item;
    return { ...item, terms: { ...item.terms, ratio: nearestRatio(size, model), keepsRatio: true } };
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
