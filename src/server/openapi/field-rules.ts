import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { ITEM_ERROR_CODES } from "../../contract/statuses.ts";

type Schema = { [keyword: string]: unknown };

/**
 * Rules that the schemas of the contract leave to later checks (lengths, limits, defaults), as `Schema.field` → keywords.
 * A keyword for strings does not apply to null, so optional fields may have it too.
 */
function factsOf(limits: Limits): Record<string, Schema> {
  const { customIdChars, metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  const mib = (bytes: number) => `${Math.floor(bytes / 1024 / 1024)} MiB`;
  return {
    "CreateBatch.model": { minLength: 1, description: "an id of the batch model list" },
    "CreateBatch.task_name": {
      description: `cut to ${FIXED_LIMITS.taskNameChars} characters; when absent, the time of creation`,
    },
    "CreateBatch.parent_batch_id": {
      description: "the batch whose failed items this one retries; its first ancestor is what is linked",
    },
    "CreateBatch.items": { maxItems: limits.itemsPerBatch },
    "CreateBatch.response_mime_type": { enum: [...IMAGE_MIME_TYPES, null], default: "image/png" },
    "CreateBatch.aspect_ratio": { description: "accepted, without effect" },
    "CreateBatch.image_size": { enum: ["1K", null], default: "1K" },
    "CreateBatch.metadata": {
      maxProperties: metadataPairs,
      description: `at most ${metadataPairs} pairs; names to ${metadataKeyChars}, values to ${metadataValueChars} characters`,
    },
    "CreateItem.custom_id": {
      minLength: 1,
      maxLength: customIdChars,
      description:
        "unique in the batch, without control characters, `/` and `\\`; when absent `item_000001` and so on",
    },
    "CreateItem.prompt": { minLength: 1, maxLength: limits.promptChars },
    "CreateItem.output_count": {
      minimum: 1,
      maximum: limits.outputCountPerItem,
      default: 1,
      description: `more than one makes items \`<custom_id>_01\`, \`_02\`, …; a batch makes at most ${limits.outputImagesPerBatch} images`,
    },
    "CreateItem.reference_images": {
      description: `how many is up to the model; the image keeps the ratio of the first; ${limits.referenceImagesPerBatch} images and ${mib(limits.referenceBytesPerBatch)} in the whole batch`,
    },
    "ReferenceImage.id": { maxLength: FIXED_LIMITS.referenceIdChars },
    "ReferenceImage.type": { maxLength: FIXED_LIMITS.referenceTypeChars, description: "what it is for" },
    "ReferenceImage.mime_type": { enum: IMAGE_MIME_TYPES },
    "ReferenceImage.data": {
      contentEncoding: "base64",
      description: `standard Base64 without a data URL prefix, at most ${mib(limits.referenceImageBytes)} when decoded`,
    },
    "ReferenceImage.storage_uri": { description: "refused unless the operator allows prefixes" },
    "GenerateContent.contents": {
      maxItems: FIXED_LIMITS.realtimeEntries,
      description: `at most ${FIXED_LIMITS.realtimeEntries} parts in all of them together`,
    },
    "Item.mime_type": { description: "the type of the stored image; null until there is one" },
    "Item.image_count": { minimum: 0 },
    "Item.error": { description: `set when failed; \`code\` is one of ${ITEM_ERROR_CODES.join(", ")}` },
  };
}

/** Adds the rules to the schemas. Throws when a rule names a field that does not exist. */
export function addFieldRules(schemas: Record<string, Schema>, limits: Limits): Record<string, Schema> {
  for (const [path, facts] of Object.entries(factsOf(limits))) {
    const [name = "", field = ""] = path.split(".");
    const properties = schemas[name]?.properties as Record<string, Schema> | undefined;
    const property = properties?.[field];
    if (!property) throw new Error(`no field ${path}`);
    Object.assign(property, facts);
  }
  return schemas;
}
