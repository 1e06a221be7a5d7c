import type { z } from "zod";
import { batchSchemas } from "../../contract/batch-api.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import { isImageMimeType, type SizePx } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, inWords, type Limits } from "../../contract/limits.ts";
import type { CheckedItem, CheckedReference } from "../../domain/batches/checked-request.ts";
import { InputImages, receiveImage, type SentTexts, shownSize } from "../../domain/images/sent-image.ts";
import { type ModelEntry, referenceLimit } from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import { createYield } from "../../kernel/pacing.ts";
import { hasUnstorableText, isLongerThan } from "../../kernel/text.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";

type ReferenceBody = z.infer<typeof batchSchemas.ReferenceImage>;

/** An item of which all but the references is checked. */
export interface ReadItem extends Omit<CheckedItem, "references"> {
  referenceBodies: readonly unknown[];
}

interface Rules {
  /** Null for an unknown model: the request is refused later, its references are still checked. */
  model: ModelEntry | null;
  limits: Limits;
  storageUriPrefixes: readonly string[];
  sent: SentTexts;
}

/**
 * Reads the reference images of all items and checks their count, Base64 and size; `checkImages` follows. Throws the
 * code of the first failure.
 */
export async function readReferences(items: readonly ReadItem[], rules: Rules): Promise<CheckedItem[]> {
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
      if (reference.image === null || read.sha256 != null) continue;
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
export async function checkImages(
  items: readonly { references: readonly CheckedReference[] }[],
  inspector: ImageInspector,
): Promise<(SizePx | null)[]> {
  const images = new InputImages(inspector);
  const sizes: (SizePx | null)[] = items.map(() => null);
  for (const [i, { references }] of items.entries()) {
    for (const [j, reference] of references.entries()) {
      const { image, mimeType } = reference;
      if (image === null) continue;
      const at = `items[${i}].reference_images[${j}]`;
      const found = await images.check(image, mimeType);
      if ("problem" in found) {
        const fields = { type: `${at}.mime_type`, bytes: `${at}.data`, amount: at };
        throw invalid(fields[found.about], found.problem);
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
  if (body.data != null || body.storage_uri != null)
    throw invalid(`${at}.sha256`, "cannot be given together with `data` or `storage_uri`");
  if (earlier === undefined)
    throw invalid(`${at}.sha256`, "no earlier reference of this request has these bytes");
  if (body.mime_type != null && body.mime_type !== earlier.mimeType)
    throw invalid(`${at}.mime_type`, `the earlier reference is ${earlier.mimeType}; leave it out`);
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
  if (mimeType == null) throw invalid(`${at}.mime_type`, "is required: the type of the image");
  if (!isImageMimeType(mimeType)) {
    throw invalid(`${at}.mime_type`, "must be image/png, image/jpeg or image/webp");
  }
  const tags = { ...tagsOf(body, at), mimeType };
  if (body.storage_uri != null) {
    const storageUri = checkStorageUri(body, at, rules.storageUriPrefixes);
    return { ...tags, storageUri, image: null, sha256: null };
  }
  if (data == null || data === "") throw invalid(`${at}.data`, "is required: the Base64 of the image");
  const maxBytes = rules.limits.referenceImageBytes;
  const image = receiveImage(data, { maxBytes, base64: "strict", sent: rules.sent });
  if (typeof image === "string") throw invalid(`${at}.data`, image);
  return { ...tags, storageUri: null, image, sha256: image.sha256 };
}

/** The service never opens it: a provider that knows the storage does. */
function checkStorageUri(body: ReferenceBody, at: string, prefixes: readonly string[]): string {
  const uri = body.storage_uri ?? "";
  if (body.data != null) throw invalid(`${at}.storage_uri`, "cannot be given together with `data`");
  if (prefixes.length === 0) throw invalid(`${at}.storage_uri`, "is not enabled here; send `data`");
  const isTidy = !hasUnstorableText(uri) && !/\s|\\|(^|\/)\.\.?(\/|$)|%2e/i.test(uri);
  if (!isTidy || !prefixes.some((prefix) => uri.startsWith(prefix) && uri.length > prefix.length)) {
    throw invalid(`${at}.storage_uri`, "is not in a storage that is allowed here");
  }
  return uri;
}

function checkTag(text: string | null | undefined, at: string, maxChars: number): string | null {
  if (text == null) return null;
  if (isLongerThan(text, maxChars) || hasUnstorableText(text)) {
    throw invalid(at, `must be text of at most ${maxChars} characters`);
  }
  return text;
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("BATCH_IMAGE_INVALID_REFERENCE_IMAGE", param, problem);
}
