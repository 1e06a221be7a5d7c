import { z } from "zod";
import { type ErrorCode, errorType, type ImgbatchError } from "./errors.ts";
import { BACKGROUNDS, MOST_SEED } from "./image-formats.ts";
import { PATHS } from "./routes.ts";

/** The most images of one request. */
const MAX_COUNT = 10;

const countError = `must be 1 to ${MAX_COUNT}`;
/** The most unfinished pictures before an image. */
export const MAX_PARTIALS = 3;
const partialsError = `must be 0 to ${MAX_PARTIALS}`;
const percentError = "must be 0 to 100";
const seedError = `must be a whole number from 0 to ${MOST_SEED}`;

/** Fields of both operations. A null or empty field is an absent one; a number or truth value may come as its text. */
const common = {
  prompt: z.string().describe("what to draw, or how to edit"),
  model: z
    .string()
    .nullish()
    .describe("a model of the list, or a name that stands for one; absent: the first"),
  n: z.int().min(1, countError).max(MAX_COUNT, countError).nullish().describe("how many images; absent: 1"),
  size: z
    .string()
    .nullish()
    .describe(
      "`WIDTHxHEIGHT`: exactly these pixels, or 400 where the model does not make them; `auto` or absent: the default",
    ),
  response_format: z.string().nullish().describe("`b64_json` (default) or `url`"),
  output_format: z.string().nullish().describe("`png` (default), `jpeg` or `webp`"),
  output_compression: z
    .int()
    .min(0, percentError)
    .max(100, percentError)
    .nullish()
    .describe("the quality of a JPEG or WebP in percent"),
  quality: z
    .string()
    .nullish()
    .describe("`low`, `medium` (also `standard`), `high` (also `hd`) or a word of the model: the nearest"),
  background: z
    .enum(BACKGROUNDS, `must be one of ${BACKGROUNDS.join(", ")}`)
    .nullish()
    .describe("`transparent` goes with `png` and `webp`"),
  seed: z
    .int(seedError)
    .min(0, seedError)
    .max(MOST_SEED, seedError)
    .nullish()
    .describe("that of the first image; each further one has the next"),
  aspect_ratio: z.string().nullish().describe("a ratio of the model, such as `16:9`, in the place of `size`"),
  image_size: z.string().nullish().describe("a size of the model, such as `2K`, or as in `size`"),
  resolution: z.string().nullish().describe("the same"),
  moderation: z.unknown().optional().describe("reaches an upstream of OpenAI's API as it is"),
  input_fidelity: z.unknown().optional().describe("the same"),
  user: z.unknown().optional().describe("the same"),
  safety_identifier: z.unknown().optional().describe("the same"),
  stream: z.boolean().nullish().describe("an event for each image; then `response_format` does not count"),
  partial_images: z
    .int(partialsError)
    .min(0, partialsError)
    .max(MAX_PARTIALS, partialsError)
    .nullish()
    .describe("of a stream: how many unfinished pictures come before each image; an upstream may have fewer"),
};

/**
 * The body of `POST /v1/images/generations`. A field that has no effect is named in the header `x-imgbatch-ignored` of the
 * answer. Images belong to the other operation.
 */
const generateImagesSchema = z.object(common);

const sentImage = z.object({
  image_url: z.string().nullish().describe("a data URL; nothing is fetched from anywhere"),
  file_id: z.string().nullish().describe("the id of an uploaded file of the same key"),
});

/** The body of `POST /v1/images/edits` as JSON. */
const editImagesSchema = z.object({
  ...common,
  images: z.array(sentImage).describe("each with one of the two fields"),
  mask: sentImage
    .nullish()
    .describe("a PNG of the size of the first image, transparent where that is to change"),
});

/** The same as a form. Fields of the form are texts. */
const editImagesFormSchema = z.object({
  ...common,
  image: z.array(z.string().meta({ format: "binary" })).describe("one image or several, also as `image[]`"),
  mask: z.string().meta({ format: "binary" }).optional(),
});

const tokens = z.int();
const details = z.looseObject({ text_tokens: tokens.optional(), image_tokens: tokens.optional() });

const usageSchema = z.looseObject({
  input_tokens: tokens,
  input_tokens_details: details.optional(),
  output_tokens: tokens,
  output_tokens_details: details.optional(),
  total_tokens: tokens,
});

const facts = {
  size: z.string().describe("`WIDTHxHEIGHT` of the image as it is"),
  quality: z.string().describe("what was used; `auto`: as the model does it by itself"),
  background: z.enum(BACKGROUNDS),
  output_format: z.enum(["png", "jpeg", "webp"]),
  usage: usageSchema.optional().describe("as the upstream counts it; absent where it does not"),
};

/** The answer of both operations. */
const imagesSchema = z.object({
  created: z.int().describe("Unix seconds"),
  data: z
    .array(
      z.object({
        b64_json: z.string().optional(),
        url: z.string().optional(),
        revised_prompt: z.string().optional().describe("the prompt that the upstream has made of it"),
      }),
    )
    .describe("the images that were made: one at least, and as many as `n` says unless some failed"),
  ...facts,
});

/** One event of a stream: a finished image, or an unfinished picture before it. */
const imageEventSchema = z.object({
  type: z.enum([
    "image_generation.partial_image",
    "image_generation.completed",
    "image_edit.partial_image",
    "image_edit.completed",
  ]),
  partial_image_index: z.int().optional().describe("of an unfinished picture: its number, from 0"),
  b64_json: z.string(),
  created_at: z.int().describe("Unix seconds"),
  ...facts,
});

/** The codes that clients know by another name. */
const CODES: { [code in ErrorCode]?: string } = {
  INVALID_API_KEY: "invalid_api_key",
  RATE_LIMITED: "rate_limit_exceeded",
  REALTIME_INSUFFICIENT_BALANCE: "insufficient_quota",
  REALTIME_MODEL_NOT_FOUND: "model_not_found",
  REALTIME_NO_IMAGE: "no_image",
  REALTIME_REFUSED: "moderation_blocked",
  REALTIME_PREVIOUS_NOT_FOUND: "previous_response_not_found",
};

/** The types that are not those of their status. */
const TYPES: { [code in ErrorCode]?: string } = {
  REALTIME_INSUFFICIENT_BALANCE: "insufficient_quota",
  REALTIME_REFUSED: "image_generation_user_error",
  REALTIME_MAY_BE_PAID: "api_error",
};

const openaiErrorSchema = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable().describe("the field or header at fault, when it is one"),
    code: z.string().describe("decide by this, never by the message"),
  }),
});

/** The code of an error as OpenAI's clients know it. Codes that they have no name for stay as they are. */
export function openaiCode(code: ErrorCode): string {
  return CODES[code] ?? code;
}

/** The JSON body of an error in OpenAI's shape. */
export function openaiErrorBody({
  code,
  message,
  param,
  httpStatus,
}: ImgbatchError): OpenaiBody<"OpenaiError"> {
  const type = TYPES[code] ?? errorType(httpStatus);
  return { error: { message, type, param: param ?? null, code: openaiCode(code) } };
}

/** Why a client of OpenAI's API uploads a file: the input of a batch, or an image for edits. */
export const FILE_PURPOSES = ["batch", "vision", "user_data"] as const;

/** The seconds that a client may ask a file to be kept. */
const KEPT_SECONDS = { min: 3600, max: 2_592_000 } as const;

const secondsError = `must be ${KEPT_SECONDS.min} to ${KEPT_SECONDS.max}`;
const seconds = z.int(secondsError).min(KEPT_SECONDS.min, secondsError).max(KEPT_SECONDS.max, secondsError);

/** When a file expires: this many seconds after it was made. */
const expiresAfterSchema = z.object({
  anchor: z.literal("created_at", "must be created_at"),
  seconds,
});

/** The fields of the form of `POST /v1/files`, besides the file. */
export const uploadFieldsSchema = z.object({
  purpose: z.enum(FILE_PURPOSES, `must be one of ${FILE_PURPOSES.join(", ")}`),
  expires_after: expiresAfterSchema.optional(),
});

/** The same request as a form names its fields, for the description of the API. */
const uploadFormSchema = z.object({
  purpose: z.enum(FILE_PURPOSES),
  file: z.string().meta({ format: "binary" }),
  "expires_after[anchor]": z.string().optional().describe("`created_at`"),
  "expires_after[seconds]": z.string().optional().describe("how long the file is kept; absent: 48 hours"),
});

const unixSeconds = z.int().describe("Unix seconds");

/** A file of OpenAI's API. */
const openaiFileSchema = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.int(),
  created_at: unixSeconds,
  expires_at: unixSeconds.optional(),
  filename: z.string(),
  purpose: z.enum([...FILE_PURPOSES, "batch_output"]),
  status: z.literal("processed"),
});

const deletedFileSchema = z.object({
  id: z.string(),
  object: z.literal("file"),
  deleted: z.literal(true),
});

/** The endpoints that the lines of a batch can ask for. */
const BATCH_ENDPOINTS = [PATHS.imageGenerations, PATHS.imageEdits] as const;

const METADATA = { pairs: 16, keyChars: 64, valueChars: 512 };
const metadataError = `has more than ${METADATA.pairs} pairs of at most ${METADATA.keyChars} and ${METADATA.valueChars} characters`;

const metadataSchema = z
  .record(
    z.string().max(METADATA.keyChars, metadataError),
    z.string().max(METADATA.valueChars, metadataError),
  )
  .refine((pairs) => Object.keys(pairs).length <= METADATA.pairs, metadataError);

/** The body of `POST /v1/batches`. Unknown fields are ignored. */
const createOpenaiBatchSchema = z.object({
  input_file_id: z.string().describe("a file of requests, one a line, of either API for files"),
  endpoint: z.enum(BATCH_ENDPOINTS, `must be ${BATCH_ENDPOINTS.join(" or ")}`),
  completion_window: z.literal("24h", "must be 24h"),
  metadata: metadataSchema.nullish(),
  output_expires_after: expiresAfterSchema.nullish(),
});

/** The states of a batch in OpenAI's API. */
const OPENAI_BATCH_STATES = [
  "validating",
  "in_progress",
  "finalizing",
  "completed",
  "failed",
  "expired",
  "cancelling",
  "cancelled",
] as const;

const fileId = z.string().nullable();

/** A batch as OpenAI's API shows it. */
const openaiBatchSchema = z.object({
  id: z.string(),
  object: z.literal("batch"),
  endpoint: z.string(),
  model: z.string(),
  errors: z
    .object({
      object: z.literal("list"),
      data: z.array(
        z.object({
          code: z.string(),
          message: z.string(),
          param: z.string().nullable(),
          line: z.int().nullable(),
        }),
      ),
    })
    .nullable()
    .describe("why the batch as a whole has failed"),
  input_file_id: z.string(),
  completion_window: z.literal("24h"),
  status: z.enum(OPENAI_BATCH_STATES),
  output_file_id: fileId.describe("the images, once the batch has ended"),
  error_file_id: fileId.describe("the lines without one: refused, wrong, failed, or not made"),
  created_at: unixSeconds,
  in_progress_at: unixSeconds.nullable(),
  expires_at: unixSeconds.nullable(),
  finalizing_at: unixSeconds.nullable(),
  completed_at: unixSeconds.nullable(),
  failed_at: unixSeconds.nullable(),
  expired_at: unixSeconds.nullable(),
  cancelling_at: unixSeconds.nullable(),
  cancelled_at: unixSeconds.nullable(),
  request_counts: z.object({ total: z.int(), completed: z.int(), failed: z.int() }),
  metadata: z.record(z.string(), z.string()).nullable(),
});

/** The tool of a response that makes an image. Its fields are those of `GenerateImages`. */
const imageToolSchema = z.looseObject({
  type: z.string().describe("`image_generation`; others have no effect"),
  model: common.model,
  size: common.size,
  quality: common.quality,
  background: common.background,
  output_format: common.output_format,
  output_compression: common.output_compression,
  moderation: common.moderation,
  input_fidelity: common.input_fidelity,
  partial_images: common.partial_images,
  input_image_mask: sentImage.nullish(),
  action: z
    .enum(["generate", "edit", "auto"], "must be generate, edit or auto")
    .nullish()
    .describe(
      "`generate`: the picture of the previous response is no input; `edit`: there must be an input image",
    ),
});

const inputPartSchema = z.looseObject({
  type: z.string().nullish().describe("`input_text` or `input_image`"),
  text: z.string().nullish(),
  image_url: z.string().nullish().describe("a data URL; nothing is fetched from anywhere"),
  file_id: z.string().nullish().describe("the id of an uploaded file of the same key"),
});

const inputItemSchema = z.looseObject({
  type: z
    .string()
    .nullish()
    .describe("`message`, `image_generation_call` or `item_reference`; absent with a `role`: `message`"),
  role: z.string().nullish().describe("`user`, `assistant`, `system` or `developer`"),
  content: z.union([z.string(), z.array(inputPartSchema)], "must be a text or a list of parts").nullish(),
  id: z.string().nullish().describe("of an `image_generation_call`: its picture is an input"),
  result: z
    .string()
    .nullish()
    .describe("of an `image_generation_call`: the Base64 of its picture, where the picture is not kept here"),
});

const MAX_NAME_CHARS = 256;

/** The body of `POST /v1/responses`. Other fields have no effect: the header `x-imgbatch-ignored` of the answer names them. */
const createResponseSchema = z.object({
  model: z
    .string()
    .max(MAX_NAME_CHARS, `has more than ${MAX_NAME_CHARS} characters`)
    .nullish()
    .describe("returned as it is; the model of the tool makes the image"),
  input: z
    .union([z.string(), z.array(inputItemSchema)], "must be a text or a list of items")
    .describe("what to draw, or how to edit"),
  tools: z.array(imageToolSchema).nullish().describe("one of them is `image_generation`"),
  tool_choice: z.unknown().optional().describe("`none` and other tools than `image_generation` are refused"),
  instructions: z
    .string()
    .nullish()
    .describe("comes before the input; responses that continue this one do not get it"),
  previous_response_id: z
    .string()
    .nullish()
    .describe("continues that response: its picture is the first input image"),
  store: z.boolean().nullish().describe("absent: true, for 48 hours"),
  stream: z.boolean().nullish(),
  background: z.boolean().nullish().describe("must not be true"),
  metadata: metadataSchema.nullish(),
});

const outputItemSchema = z.looseObject({
  id: z.string(),
  type: z.enum(["image_generation_call", "message"]),
  status: z.string(),
  result: z.string().nullish().describe("the Base64 of the image"),
  size: z.string().optional(),
  quality: z.string().optional(),
  background: z.string().optional(),
  output_format: z.string().optional(),
  revised_prompt: z.string().optional(),
  role: z.literal("assistant").optional(),
  content: z.array(z.looseObject({ type: z.literal("output_text"), text: z.string() })).optional(),
});

/** A response, with an image and perhaps a text. */
const responseSchema = z.looseObject({
  id: z.string(),
  object: z.literal("response"),
  created_at: unixSeconds,
  status: z.enum(["completed", "in_progress", "failed"]),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  model: z.string(),
  output: z.array(outputItemSchema),
  previous_response_id: z.string().nullable(),
  store: z.boolean(),
  metadata: z.record(z.string(), z.string()).nullable(),
  usage: usageSchema
    .nullable()
    .describe("the tokens of the texts, counted for drawings alone; null until there is an image"),
  tool_usage: z
    .object({ image_gen: usageSchema })
    .optional()
    .describe("of the image, as the upstream counts it; absent where it does not"),
});

/** One event of a stream. The last one, `response.completed` or `response.failed`, has the whole response. */
const responseEventSchema = z.looseObject({
  type: z.string(),
  sequence_number: z.int(),
});

const deletedResponseSchema = z.object({
  id: z.string(),
  object: z.literal("response"),
  deleted: z.literal(true),
});

const openaiListOf = <T extends z.ZodType>(element: T) =>
  z.object({
    object: z.literal("list"),
    data: z.array(element),
    first_id: z.string().nullable(),
    last_id: z.string().nullable().describe("goes into `after` for the next page"),
    has_more: z.boolean(),
  });

/** The schemas of the bodies, by their names in the OpenAPI document. */
export const openaiSchemas = {
  GenerateImages: generateImagesSchema,
  EditImages: editImagesSchema,
  EditImagesForm: editImagesFormSchema,
  Images: imagesSchema,
  ImageEvent: imageEventSchema,
  OpenaiError: openaiErrorSchema,
  CreateResponse: createResponseSchema,
  Response: responseSchema,
  ResponseEvent: responseEventSchema,
  DeletedResponse: deletedResponseSchema,
  OpenaiFile: openaiFileSchema,
  OpenaiFileList: openaiListOf(openaiFileSchema),
  OpenaiUploadForm: uploadFormSchema,
  DeletedFile: deletedFileSchema,
  CreateOpenaiBatch: createOpenaiBatchSchema,
  OpenaiBatch: openaiBatchSchema,
  OpenaiBatchList: openaiListOf(openaiBatchSchema),
};

/** A body of OpenAI's API, by its name in the OpenAPI document. */
export type OpenaiBody<Name extends keyof typeof openaiSchemas> = z.infer<(typeof openaiSchemas)[Name]>;
