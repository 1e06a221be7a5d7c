import { z } from "zod";
import { announcedPixelsSchema } from "./batch-api.ts";
import { BACKGROUNDS } from "./image-formats.ts";

/**
 * The native real-time protocol: one request makes one main image, which comes back as Base64 in the answer.
 * Field names are lowerCamelCase here; the service also takes them in snake_case.
 */

/**
 * The text of the part that a stream sends while its image is being made. It is marked as a thought, so that libraries show it to
 * nobody. It is not empty: a library takes a chat with an empty text for broken, and forgets it.
 */
export const SIGN_TEXT = " ";

/** A null field is an absent one. */
const hasField = (part: object) => Object.values(part).some((value) => value != null);

const inlineData = z.object({
  mimeType: z.string(),
  data: z.string().describe("Base64 of either alphabet, padded or not, without a data URL prefix"),
});

const fileData = z.object({
  mimeType: z.string().nullish().describe("ignored: the bytes decide"),
  fileUri: z
    .string()
    .describe("`uri` or `name` of an uploaded file of the same key; its host does not matter"),
});

/** Fields of a request that reach an upstream of this API as they came. */
const PASSED = z.unknown().optional();

/**
 * The types of a request's body; values are checked afterwards. Null stands for an absent field. A field that reaches no
 * upstream is named in the header `x-imgbatch-ignored` of the answer.
 */
const generateContentSchema = z.looseObject({
  contents: z.array(
    z.object({
      role: z.string().nullish().describe("`user` or `model`; absent: `user`"),
      parts: z
        .array(
          z
            .looseObject({
              text: z.string().nullish(),
              inlineData: inlineData.nullish(),
              fileData: fileData.nullish(),
              thought: z.boolean().nullish().describe("an interim image of an earlier answer: ignored"),
              thoughtSignature: z.string().nullish(),
            })
            .refine(hasField, "must not be empty: a text, or an image as inlineData or fileData"),
        )
        .nullish(),
    }),
  ),
  systemInstruction: PASSED.describe("refused where no provider of the model can follow it"),
  tools: PASSED.describe("refused where no provider of the model has them"),
  toolConfig: PASSED,
  safetySettings: PASSED,
  cachedContent: PASSED.describe("refused where no provider of the model has it"),
  generationConfig: z.looseObject({
    responseModalities: z.array(z.string()).describe("must hold `IMAGE`"),
    responseMimeType: z.string().nullish().describe("an image type sets the format; others are ignored"),
    seed: z.number().nullish().describe("a whole number from 0 to 4294967295"),
    imageConfig: z
      .looseObject({
        aspectRatio: z.string().nullish().describe("absent: the ratio of the first input image, else 1:1"),
        imageSize: z.string().nullish(),
        pixels: z
          .string()
          .nullish()
          .describe(
            "our addition, instead of `imageSize` and `aspectRatio`: exact pixels such as `1600x912`, as far as `imageOptions` of the model announces them",
          ),
        quality: z.string().nullish().describe("our addition: a word of the model, see `imageOptions`"),
        background: z
          .string()
          .nullish()
          .describe("our addition: `transparent`, `opaque` or `auto`, see `imageOptions`"),
        negativePrompt: z
          .string()
          .nullish()
          .describe("our addition: what the image must not show, see `imageOptions`"),
        outputMimeType: z.string().nullish(),
        imageOutputOptions: z.object({ mimeType: z.string().nullish() }).nullish(),
      })
      .nullish(),
  }),
});

const tokenCount = z.int();
const modalityTokens = z.array(z.looseObject({ modality: z.string(), tokenCount }));

/** Responses of other services pass too: only fields with a meaning here are named, and each may be missing. */
const responsePart = z.looseObject({
  text: z.string().optional(),
  inlineData: z.looseObject({ mimeType: z.string(), data: z.string() }).optional(),
  thoughtSignature: z.string().optional().describe("as the upstream sent it; send it back with the part"),
  /** An interim image of a model that thinks: no result. */
  thought: z.boolean().optional(),
});

/** A response, or one event of a stream. Without an image nothing was made, though the status is 200. */
const generateContentResponseSchema = z.looseObject({
  candidates: z
    .array(
      z.looseObject({
        content: z
          .looseObject({ role: z.string().optional(), parts: z.array(responsePart).optional() })
          .optional(),
        /** `STOP` when all went well; `NO_IMAGE` when the model made none. See `REFUSING_FINISH_REASONS`. */
        finishReason: z.string().optional(),
        finishMessage: z.string().optional(),
        groundingMetadata: z.unknown().optional().describe("as the upstream sent it"),
        index: z.int().optional(),
      }),
    )
    .optional(),
  /** Set, without candidates, when the prompt itself was refused. */
  promptFeedback: z
    .looseObject({ blockReason: z.string().optional(), blockReasonMessage: z.string().optional() })
    .optional(),
  usageMetadata: z
    .looseObject({
      promptTokenCount: tokenCount.optional(),
      candidatesTokenCount: tokenCount.optional(),
      thoughtsTokenCount: tokenCount.optional(),
      totalTokenCount: tokenCount.optional(),
      promptTokensDetails: modalityTokens.optional(),
      candidatesTokensDetails: modalityTokens.optional(),
    })
    .optional(),
  /** The model that really ran. */
  modelVersion: z.string().optional(),
  responseId: z.string().optional(),
});

/** The body of every error of the native API; also the data of an event when a stream fails on its way. */
const nativeErrorBodySchema = z.looseObject({
  error: z.looseObject({
    /** Equals the HTTP status. */
    code: z.int(),
    message: z.string(),
    status: z.string(),
    /**
     * `BadRequest {fieldViolations: [{field, description}]}` with every 400 about a field, `RetryInfo {retryDelay: "2s"}`
     * when it is known how long to wait, `ErrorInfo {reason, domain: "imgbatch"}` with this service's error code, and `metadata.waiting` with the reason why no
     * upstream could make the image.
     */
    details: z.array(z.looseObject({ "@type": z.string() })).optional(),
  }),
});

/** An entry of `/v1beta/models`. The last five fields are our addition, so that clients know what they may ask for. */
const nativeModelSchema = z.looseObject({
  /** `models/` and the id. */
  name: z.string(),
  version: z.string(),
  displayName: z.string(),
  description: z.string(),
  inputTokenLimit: z.int(),
  outputTokenLimit: z.int(),
  supportedGenerationMethods: z.array(z.string()),
  aspectRatios: z.array(z.string()),
  imageSizes: z.array(z.string()),
  maxInputImages: z.int(),
  imageOptions: z
    .object({
      pixels: announcedPixelsSchema,
      quality: z.array(z.string()),
      defaultQuality: z.string().nullable().describe("of a request that names none"),
      background: z.array(z.enum(BACKGROUNDS)),
      seed: z.boolean(),
      negativePrompt: z.boolean(),
    })
    .describe("the values that our additions to `imageConfig`, and `seed`, may have"),
  pricing: z.object({
    currency: z.literal("usd"),
    /** The price of one image, by size. */
    images: z.record(z.string(), z.number()),
    qualities: z
      .record(z.string(), z.record(z.string(), z.number()))
      .describe("the same for each quality; `images` has the prices of the default one"),
    paid: z
      .literal(true)
      .optional()
      .describe("the images cost real money: an upstream makes them, and it is not free"),
    play_money: z.literal(true).optional().describe("the images are drawn, and the prices are no real money"),
  }),
});

/** `GET /v1beta/models`. `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
const nativeModelListSchema = z.looseObject({
  models: z.array(nativeModelSchema),
  nextPageToken: z.string().optional(),
});

/** `GET /v1/models/{id}`: the fields of an OpenAI model and those of a native one. */
const sharedModelSchema = nativeModelSchema.extend({
  id: z.string(),
  object: z.literal("model"),
  created: z.int(),
  owned_by: z.string(),
});

/** `GET /v1/models`: one response that OpenAI clients (`data`) and native ones (`models`) can read. */
const sharedModelListSchema = nativeModelListSchema.extend({
  object: z.literal("list"),
  data: z.array(sharedModelSchema),
});

/** The client's description of a file when it begins an upload. Null stands for an absent field; unknown fields are ignored. */
const startUploadSchema = z.object({
  file: z
    .object({
      name: z.string().nullish().describe("`files/` and an id of your own; absent: the service makes one"),
      displayName: z.string().nullish(),
      mimeType: z
        .string()
        .nullish()
        .describe("absent: that of the header `X-Goog-Upload-Header-Content-Type`"),
      sizeBytes: z.union([z.string(), z.number()]).nullish().describe("ignored"),
    })
    .nullish(),
});

/** A file of the vendor's API. Responses of other services pass too, so each field but the name may be missing. */
const nativeFileSchema = z.looseObject({
  /** `files/` and the id. */
  name: z.string(),
  displayName: z.string().optional(),
  mimeType: z.string().optional(),
  sizeBytes: z.string().optional().describe("a whole number"),
  /** RFC 3339. */
  createTime: z.string().optional(),
  updateTime: z.string().optional(),
  expirationTime: z.string().optional(),
  sha256Hash: z.string().optional().describe("Base64 of the hexadecimal digits"),
  uri: z.string().optional().describe("goes into `fileData.fileUri` of a request"),
  state: z.string().optional(),
  source: z.string().optional(),
});

/** The end of an upload. */
const uploadedFileSchema = z.looseObject({ file: nativeFileSchema.optional() });

/** `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
const nativeFileListSchema = z.looseObject({
  files: z.array(nativeFileSchema).optional(),
  nextPageToken: z.string().optional(),
});

/**
 * Batch jobs of the native protocol: many `generateContent` requests as one job, whose results come later. Field names are
 * lowerCamelCase here; the service also takes them in snake_case.
 */

/** The body of `:batchGenerateContent`. Null stands for an absent field. Unknown fields are ignored. */
const createJobSchema = z.object({
  batch: z.object({
    displayName: z.string().nullish(),
    inputConfig: z.object({
      fileName: z.string().nullish().describe("`files/` and the id of an uploaded file: a request a line"),
      requests: z
        .object({
          requests: z.array(
            z.looseObject({
              request: z.unknown().describe("as `generateContent` takes it"),
              metadata: z.looseObject({}).nullish().describe("comes back with the response"),
            }),
          ),
        })
        .nullish(),
    }),
  }),
});

/** The states of a job in `metadata.state`. */
const JOB_STATES = [
  "BATCH_STATE_PENDING",
  "BATCH_STATE_RUNNING",
  "BATCH_STATE_SUCCEEDED",
  "BATCH_STATE_FAILED",
  "BATCH_STATE_CANCELLED",
  "BATCH_STATE_EXPIRED",
] as const;

/** Why a job or one of its lines has no result. */
const rpcErrorSchema = z.looseObject({
  code: z.int().describe("as in google.rpc.Code"),
  message: z.string(),
});

/** The results of a job that came inline, in the order of its requests. */
const inlinedResponseSchema = z.looseObject({
  response: generateContentResponseSchema.optional(),
  error: rpcErrorSchema.optional(),
  metadata: z.unknown().optional().describe("that of the request"),
});

/** Where the results are: in a file, or for a job that came inline, in this object. */
const jobOutputSchema = z.looseObject({
  responsesFile: z.string().optional(),
  inlinedResponses: z.object({ inlinedResponses: z.array(inlinedResponseSchema) }).optional(),
});

const counter = z.string().regex(/^\d+$/).optional();

/** A job. Counters are text, and those that are 0 are left out. */
const jobSchema = z.looseObject({
  name: z.string().describe("`batches/` and the id"),
  metadata: z.looseObject({
    "@type": z.string(),
    name: z.string(),
    model: z.string(),
    displayName: z.string(),
    state: z.enum(JOB_STATES),
    inputConfig: z.object({ fileName: z.string() }).optional(),
    createTime: z.string(),
    updateTime: z.string(),
    endTime: z.string().optional(),
    batchStats: z.object({
      requestCount: counter,
      pendingRequestCount: counter,
      successfulRequestCount: counter,
      failedRequestCount: counter,
    }),
    output: jobOutputSchema.optional(),
  }),
  done: z.literal(true).optional(),
  response: jobOutputSchema.optional(),
  error: rpcErrorSchema.optional().describe("instead of `response` when the job has not succeeded"),
});

/** `GET /v1beta/batches`. `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
const jobListSchema = z.looseObject({
  operations: z.array(jobSchema),
  nextPageToken: z.string().optional(),
});

const interactionContentSchema = z.looseObject({
  type: z.string().nullish().describe("`text` or `image`; of a step, `user_input` or `model_output`"),
  text: z.string().nullish(),
  data: z.string().nullish().describe("the Base64 of an image"),
  uri: z
    .string()
    .nullish()
    .describe("in its place, `uri` or `name` of an uploaded file of the same key; nothing is fetched"),
  mime_type: z.string().nullish(),
});

const contentList = z.union(
  [z.string(), interactionContentSchema, z.array(interactionContentSchema)],
  "must be a text, a part, or a list of parts",
);

const interactionInputSchema = interactionContentSchema.extend({
  content: contentList.nullish().describe("of a step"),
});

const imageConfigFields = {
  aspect_ratio: z.string().nullish().describe("absent or `auto`: that of the first input image, else 1:1"),
  image_size: z.string().nullish(),
};

const responseFormatSchema = z.looseObject({
  type: z.string().nullish().describe("`image`, or `text` beside it"),
  mime_type: z.string().nullish().describe("`image/png` (default), `image/jpeg` or `image/webp`"),
  delivery: z.string().nullish().describe("`inline`"),
  ...imageConfigFields,
});

/**
 * The body of `POST /v1beta/interactions`. Null stands for an absent field. A field that has no effect is named in the header
 * `x-imgbatch-ignored` of the answer.
 */
const createInteractionSchema = z.looseObject({
  model: z.string().nullish().describe("a model of the list"),
  agent: z.unknown().optional().describe("refused: only models make images here"),
  input: z
    .union(
      [z.string(), interactionInputSchema, z.array(interactionInputSchema)],
      "must be a text, a part, or a list of parts or steps",
    )
    .describe("what to draw, or how to edit"),
  response_format: z
    .union([responseFormatSchema, z.array(responseFormatSchema)], "must be an object or a list of them")
    .nullish(),
  response_modalities: z.array(z.string()).nullish().describe("older; must hold `image`"),
  generation_config: z
    .looseObject({
      seed: z.number().nullish(),
      image_config: z.looseObject(imageConfigFields).nullish().describe("older than `response_format`"),
    })
    .nullish(),
  previous_interaction_id: z.string().nullish().describe("continues that interaction"),
  system_instruction: z.string().nullish(),
  safety_settings: PASSED,
  tools: PASSED.describe("refused where no provider of the model has them"),
  store: z.boolean().nullish().describe("absent: true, for 48 hours"),
  background: z
    .boolean()
    .nullish()
    .describe("the answer comes at once, and the image when it is asked for later"),
  stream: z.boolean().nullish(),
});

const interactionUsage = z.looseObject({
  total_input_tokens: tokenCount,
  total_output_tokens: tokenCount,
  total_thought_tokens: tokenCount,
  total_tokens: tokenCount,
});

const interactionErrorFields = z.looseObject({
  code: z.string().describe("a word for the status, such as `invalid_request`"),
  message: z.string(),
  reason: z.string().optional().describe("our addition: decide by this, never by the message"),
  param: z.string().optional().describe("our addition: the field at fault, when it is one"),
});

/** An interaction. It has no `id` when it is not stored. */
const interactionSchema = z.looseObject({
  id: z.string().optional(),
  object: z.literal("interaction"),
  status: z.enum(["in_progress", "completed", "failed", "cancelled"]),
  model: z.string(),
  created: z.string().describe("RFC 3339"),
  updated: z.string(),
  previous_interaction_id: z.string().optional(),
  steps: z.array(
    z.looseObject({
      type: z.enum(["user_input", "model_output"]),
      content: z.array(
        z.looseObject({
          type: z.enum(["text", "image"]),
          text: z.string().optional(),
          data: z.string().optional(),
          mime_type: z.string().optional(),
        }),
      ),
    }),
  ),
  usage: interactionUsage.optional().describe("as the upstream counts it; absent where it does not"),
  errors: z.array(interactionErrorFields).optional().describe("why it has failed"),
});

/** One event of a stream. The picture is in one `step.delta`. */
const interactionEventSchema = z.looseObject({
  event_type: z.string(),
  event_id: z.string().describe("goes into `last_event_id`"),
});

/** The body of every error of these operations. */
const interactionErrorSchema = z.object({ error: interactionErrorFields });

/** The schemas of the bodies, by their names in the OpenAPI document. */
export const nativeSchemas = {
  GenerateContent: generateContentSchema,
  GenerateContentAnswer: generateContentResponseSchema,
  NativeModel: nativeModelSchema,
  NativeModelList: nativeModelListSchema,
  SharedModel: sharedModelSchema,
  SharedModelList: sharedModelListSchema,
  CreateInteraction: createInteractionSchema,
  Interaction: interactionSchema,
  InteractionEvent: interactionEventSchema,
  InteractionError: interactionErrorSchema,
  NativeError: nativeErrorBodySchema,
  CreateJob: createJobSchema,
  Job: jobSchema,
  JobList: jobListSchema,
  StartUpload: startUploadSchema,
  UploadedFile: uploadedFileSchema,
  NativeFile: nativeFileSchema,
  NativeFileList: nativeFileListSchema,
};

/** A body of the native API, by its name in the OpenAPI document. */
export type NativeBody<Name extends keyof typeof nativeSchemas> = z.infer<(typeof nativeSchemas)[Name]>;
