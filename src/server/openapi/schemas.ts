import { z } from "zod";
import { batchObjectSchema } from "../../contract/batch-api/batches.ts";
import {
  createBatchSchema,
  createItemSchema,
  referenceImageSchema,
} from "../../contract/batch-api/create-batch.ts";
import { itemObjectSchema, itemThumbnailSchema } from "../../contract/batch-api/items.ts";
import { batchModelSchema } from "../../contract/batch-api/models.ts";
import { retryBatchSchema } from "../../contract/batch-api/retry-batch.ts";
import { accountSchema, ledgerEntrySchema, usageSchema } from "../../contract/console-api/account.ts";
import { overviewSchema } from "../../contract/console-api/overview.ts";
import { sessionSchema, signInCodeSchema, ticketSchema } from "../../contract/console-api/session.ts";
import { errorType, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { createJobSchema, jobListSchema, jobSchema } from "../../contract/native-api/batch-jobs.ts";
import {
  nativeFileListSchema,
  nativeFileSchema,
  startUploadSchema,
  uploadedFileSchema,
} from "../../contract/native-api/files.ts";
import {
  generateContentResponseSchema,
  generateContentSchema,
  nativeErrorBodySchema,
  nativeModelListSchema,
  nativeModelSchema,
  sharedModelListSchema,
  sharedModelSchema,
} from "../../contract/native-api/generate-content.ts";
import { createOpenaiBatchSchema, openaiBatchSchema } from "../../contract/openai-batches/batches.ts";
import {
  deletedFileSchema,
  openaiFileSchema,
  uploadFormSchema,
} from "../../contract/openai-batches/files.ts";
import { imageEventSchema, imagesSchema } from "../../contract/openai-images/answers.ts";
import { openaiErrorSchema } from "../../contract/openai-images/errors.ts";
import {
  editImagesFormSchema,
  editImagesSchema,
  generateImagesSchema,
} from "../../contract/openai-images/requests.ts";
import { addFieldRules } from "./field-rules.ts";

export type JsonSchema = { [keyword: string]: unknown };

const listOf = <T extends z.ZodType>(element: T) =>
  z.object({
    object: z.literal("list"),
    data: z.array(element),
    has_more: z.boolean(),
    next_cursor: z.string().nullable().describe("goes into `cursor` for the next page"),
  });

const openaiListOf = <T extends z.ZodType>(element: T) =>
  z.object({
    object: z.literal("list"),
    data: z.array(element),
    first_id: z.string().nullable(),
    last_id: z.string().nullable().describe("goes into `after` for the next page"),
    has_more: z.boolean(),
  });

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
  Batch: batchObjectSchema,
  BatchList: listOf(batchObjectSchema),
  Item: itemObjectSchema,
  ItemList: listOf(itemObjectSchema),
  ThumbnailList: listOf(itemThumbnailSchema),
  BatchModel: batchModelSchema,
  BatchModelList: listOf(batchModelSchema),
  CreateBatch: createBatchSchema,
  RetryBatch: retryBatchSchema,
  CreateItem: createItemSchema,
  ReferenceImage: referenceImageSchema,
  Error: errorSchema,
  Account: accountSchema,
  UsageList: listOf(usageSchema),
  LedgerList: listOf(ledgerEntrySchema),
  SignInCode: signInCodeSchema,
  Session: sessionSchema,
  Ticket: ticketSchema,
  ServiceOverview: overviewSchema,
  GenerateContent: generateContentSchema,
  GenerateContentAnswer: generateContentResponseSchema,
  NativeModel: nativeModelSchema,
  NativeModelList: nativeModelListSchema,
  SharedModel: sharedModelSchema,
  SharedModelList: sharedModelListSchema,
  CreateJob: createJobSchema,
  Job: jobSchema,
  JobList: jobListSchema,
  StartUpload: startUploadSchema,
  UploadedFile: uploadedFileSchema,
  NativeFile: nativeFileSchema,
  NativeFileList: nativeFileListSchema,
  GenerateImages: generateImagesSchema,
  EditImages: editImagesSchema,
  EditImagesForm: editImagesFormSchema,
  Images: imagesSchema,
  ImageEvent: imageEventSchema,
  OpenaiError: openaiErrorSchema,
  OpenaiFile: openaiFileSchema,
  OpenaiFileList: openaiListOf(openaiFileSchema),
  OpenaiUploadForm: uploadFormSchema,
  DeletedFile: deletedFileSchema,
  CreateOpenaiBatch: createOpenaiBatchSchema,
  OpenaiBatch: openaiBatchSchema,
  OpenaiBatchList: openaiListOf(openaiBatchSchema),
  Empty: z.object({}),
  NativeError: nativeErrorBodySchema,
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
