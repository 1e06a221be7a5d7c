import { ImgbatchError } from "../../contract/errors.ts";
import { type ImageMimeType, isImageMimeType } from "../../contract/image-types.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { type ModelEntry, referenceLimit } from "../models.ts";
import type { ImageInspector } from "../ports/image-inspector.ts";
import { fail } from "./request-problems.ts";

export interface CheckedReference {
  id: string | null;
  type: string | null;
  mimeType: ImageMimeType;
  bytes: Buffer;
  sha256: string;
}

interface ReferenceBody {
  id?: string | null | undefined;
  type?: string | null | undefined;
  mime_type: string;
  data?: string | null | undefined;
  storage_uri?: string | null | undefined;
}

interface Rules {
  /** Null for an unknown model: the request is refused later, its references are still checked. */
  model: ModelEntry | null;
  limits: Limits;
  inspector: ImageInspector;
}

/**
 * Checks the reference images of all items: count, Base64, size, and that the bytes really are an image of the type
 * that the request says. Equal bytes are decoded once. Throws the code of the first failure.
 */
export async function checkReferences<T extends { outputCount: number; reference_images: ReferenceBody[] }>(
  items: readonly T[],
  rules: Rules,
): Promise<(Omit<T, "reference_images"> & { references: CheckedReference[] })[]> {
  refuseTooMany(items, rules);
  const pixels = new Map<string, number>();
  let totalBytes = 0;
  const checked = [];
  for (const [i, item] of items.entries()) {
    const references: CheckedReference[] = [];
    for (const [j, body] of item.reference_images.entries()) {
      const at = `items[${i}].reference_images[${j}]`;
      const reference = readReference(body, at, rules.limits);
      totalBytes += reference.bytes.length;
      if (totalBytes > rules.limits.referenceBytesPerBatch) {
        const mib = Math.floor(rules.limits.referenceBytesPerBatch / 1024 / 1024);
        const problem = `the reference images of the batch exceed ${mib} MiB in all`;
        throw fail("BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE", "items", problem);
      }
      await checkImage(reference, at, pixels, rules.inspector);
      references.push(reference);
    }
    const { reference_images: _, ...rest } = item;
    checked.push({ ...rest, references });
  }
  return checked;
}

function refuseTooMany(
  items: readonly { outputCount: number; reference_images: readonly unknown[] }[],
  { model, limits }: Rules,
): void {
  const perItem = model ? referenceLimit(model) : Number.POSITIVE_INFINITY;
  let total = 0;
  for (const [i, { outputCount, reference_images }] of items.entries()) {
    total += outputCount * reference_images.length;
    if (reference_images.length > perItem) {
      const problem = `has ${reference_images.length} images; this model takes at most ${perItem}`;
      throw fail("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES", `items[${i}].reference_images`, problem);
    }
  }
  if (total > limits.referenceImagesPerBatch) {
    const problem = `have ${total} reference images after expansion; at most ${limits.referenceImagesPerBatch} are allowed`;
    throw fail("BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES", "items", problem);
  }
}

function readReference(body: ReferenceBody, at: string, limits: Limits): CheckedReference {
  const { mime_type: mimeType, data } = body;
  if (!isImageMimeType(mimeType)) {
    throw invalid(`${at}.mime_type`, "must be image/png, image/jpeg or image/webp");
  }
  if (body.storage_uri != null) throw invalid(`${at}.storage_uri`, "is not enabled here; send `data`");
  if (data == null || data === "") throw invalid(`${at}.data`, "is required: the Base64 of the image");
  if (data.length > Math.ceil(limits.referenceImageBytes / 3) * 4) {
    const mib = limits.referenceImageBytes / 1024 / 1024;
    throw invalid(`${at}.data`, `is larger than ${mib} MiB`);
  }
  const bytes = Buffer.from(data, "base64");
  // Node skips what is not Base64; only a round trip shows it.
  if (bytes.toString("base64") !== data) {
    throw invalid(`${at}.data`, "must be strict Base64, without a data URL prefix");
  }
  if (bytes.length > limits.referenceImageBytes) {
    throw invalid(`${at}.data`, `is larger than ${limits.referenceImageBytes / 1024 / 1024} MiB`);
  }
  const { referenceIdChars, referenceTypeChars } = FIXED_LIMITS;
  return {
    id: checkTag(body.id, `${at}.id`, referenceIdChars),
    type: checkTag(body.type, `${at}.type`, referenceTypeChars),
    mimeType,
    bytes,
    sha256: sha256Hex(bytes),
  };
}

function checkTag(text: string | null | undefined, at: string, maxChars: number): string | null {
  if (text == null) return null;
  if (Array.from(text).length > maxChars || hasUnstorableText(text)) {
    throw invalid(at, `must be text of at most ${maxChars} characters`);
  }
  return text;
}

async function checkImage(
  reference: CheckedReference,
  at: string,
  pixels: Map<string, number>,
  inspector: ImageInspector,
): Promise<void> {
  const known = `${reference.sha256} ${reference.mimeType}`;
  if (pixels.has(known)) return;
  try {
    const facts = await inspector.inspect(reference.bytes, { maxPixels: FIXED_LIMITS.referencePixels });
    if (facts.mimeType !== reference.mimeType) {
      throw invalid(`${at}.mime_type`, `says ${reference.mimeType}, the bytes are ${facts.mimeType}`);
    }
    pixels.set(known, facts.widthPx * facts.heightPx);
  } catch (error) {
    if (error instanceof ImgbatchError) throw error;
    throw invalid(`${at}.data`, error instanceof Error ? error.message : "is no image");
  }
  const total = [...pixels.values()].reduce((a, b) => a + b, 0);
  if (total > FIXED_LIMITS.referencePixelsPerRequest) {
    const megapixels = FIXED_LIMITS.referencePixelsPerRequest / 1e6;
    throw invalid(at, `the reference images exceed ${megapixels} megapixels in all`);
  }
}

function invalid(param: string, problem: string): ImgbatchError {
  return fail("BATCH_IMAGE_INVALID_REFERENCE_IMAGE", param, problem);
}
