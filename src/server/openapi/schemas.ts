import { z } from "zod";
import {
  batchModelSchema,
  batchObjectSchema,
  createBatchSchema,
  createItemSchema,
  itemObjectSchema,
  itemThumbnailSchema,
  referenceImageSchema,
  retryBatchSchema,
} from "../../contract/batch-api.ts";
import {
  accountSchema,
  ledgerEntrySchema,
  overviewSchema,
  sessionSchema,
  signInCodeSchema,
  ticketSchema,
  usageSchema,
} from "../../contract/console-api.ts";
import { errorType, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import {
  generateContentResponseSchema,
  generateContentSchema,
  nativeErrorBodySchema,
  nativeModelListSchema,
  nativeModelSchema,
  sharedModelListSchema,
  sharedModelSchema,
} from "../../contract/native-api.ts";
import {
  createJobSchema,
  jobListSchema,
  jobSchema,
  nativeFileListSchema,
  nativeFileSchema,
  startUploadSchema,
  uploadedFileSchema,
} from "../../contract/native-jobs.ts";
import {
  createOpenaiBatchSchema,
  deletedFileSchema,
  editImagesFormSchema,
  editImagesSchema,
  generateImagesSchema,
  imageEventSchema,
  imagesSchema,
  openaiBatchSchema,
  openaiErrorSchema,
  openaiFileSchema,
  uploadFormSchema,
} from "../../contract/openai-api.ts";
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
