import { z } from "zod";
import { batchSchemas } from "../../contract/batch-api.ts";
import { consoleSchemas } from "../../contract/console-api.ts";
import { errorType, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { nativeSchemas } from "../../contract/native-api.ts";
import { openaiSchemas } from "../../contract/openai-api.ts";
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
function addFieldRules(schemas: Record<string, Schema>, limits: Limits): Record<string, Schema> {
  for (const [path, facts] of Object.entries(factsOf(limits))) {
    const [name = "", field = ""] = path.split(".");
    const properties = schemas[name]?.properties as Record<string, Schema> | undefined;
    const property = properties?.[field];
    if (!property) throw new Error(`no field ${path}`);
    Object.assign(property, facts);
  }
  return schemas;
}

type JsonSchema = { [keyword: string]: unknown };

const CODES = Object.keys(SERVICE_ERRORS) as ServiceErrorCode[];
const TYPES = [...new Set(CODES.map((code) => errorType(SERVICE_ERRORS[code].httpStatus)))];

const errorSchema = z.object({
  error: z.object({
    type: z.enum(TYPES),
    code: z.enum(CODES).describe("decide by this, never by the message"),
    message: z.string(),
    param: z.string().optional().describe("the field, parameter or header at fault, when it is one"),
  }),
});

const healthSchema = z.object({
  status: z.literal("ok"),
  proof: z
    .string()
    .optional()
    .describe("the proof for a challenge: a reader of the data directory can check that this is its service"),
});

/** The response of `/readyz`. */
const readinessSchema = z.object({
  status: z.enum(["ready", "not_ready"]),
  problems: z.array(z.string()),
});
export type Readiness = z.infer<typeof readinessSchema>;

const COMPONENTS: Record<string, z.ZodType> = {
  ...batchSchemas,
  ...consoleSchemas,
  ...nativeSchemas,
  ...openaiSchemas,
  Error: errorSchema,
  Empty: z.object({}),
  Health: healthSchema,
  Readiness: readinessSchema,
  OpenApi: z.looseObject({ openapi: z.string(), info: z.looseObject({}), paths: z.looseObject({}) }),
};

/** The schemas of all bodies, by name, made from those that the service itself checks with. */
export function componentSchemas(limits: Limits): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(COMPONENTS)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, {
    // Readers must bear fields that a later version adds, so objects stay open.
    io: "input",
    uri: (id) => `#/components/schemas/${id}`,
    override: ({ jsonSchema }) => {
      // The largest safe integer of JavaScript is not a rule of the API.
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
  const bare = Object.entries(schemas).map(([name, { $schema, $id, ...schema }]) => [name, schema]);
  return addFieldRules(Object.fromEntries(bare), limits);
}
