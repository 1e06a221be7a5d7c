import { z } from "zod";
import type { ImageMimeType, SizeTier } from "./image-formats.ts";

/**
 * The native real-time protocol: one request makes one main image, which comes back as Base64 in the answer.
 * Field names are lowerCamelCase here; the service also takes them in snake_case.
 */

/** A part that a client sends: exactly one of text and image. */
export type RequestPart =
  | { text: string }
  | {
      inlineData: {
        mimeType: ImageMimeType;
        /** Base64 without a data URL prefix. */
        data: string;
      };
    };

/** The body that a client sends to `:generateContent` and `:streamGenerateContent`. */
export interface GenerateContentBody {
  contents: { role: "user" | "model"; parts: RequestPart[] }[];
  generationConfig: {
    /** Must hold `IMAGE`. */
    responseModalities: ("TEXT" | "IMAGE")[];
    imageConfig: {
      /** One of the ratios of the model; absent: the input image's, else 1:1. */
      aspectRatio?: string;
      /** Default `1K`. */
      imageSize?: SizeTier;
      /** Default PNG. */
      outputMimeType?: ImageMimeType;
    };
  };
}

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

/**
 * The types of a request's body; values are checked afterwards. Null stands for an absent field. Unknown fields are
 * ignored.
 */
export const generateContentSchema = z.object({
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
            })
            .refine(hasField, "must not be empty: a text, or an image as inlineData or fileData"),
        )
        .nullish(),
    }),
  ),
  generationConfig: z.object({
    responseModalities: z.array(z.string()).describe("must hold `IMAGE`"),
    responseMimeType: z.string().nullish().describe("an image type sets the format; others are ignored"),
    imageConfig: z
      .object({
        aspectRatio: z.string().nullish().describe("absent: the ratio of the first input image, else 1:1"),
        imageSize: z.string().nullish(),
        outputMimeType: z.string().nullish(),
        imageOutputOptions: z.object({ mimeType: z.string().nullish() }).nullish(),
      })
      .nullish(),
  }),
});
export type GenerateContentRequest = z.infer<typeof generateContentSchema>;

const tokenCount = z.int();
const modalityTokens = z.array(z.looseObject({ modality: z.string(), tokenCount }));

/** Responses of other services pass too: only fields with a meaning here are named, and each may be missing. */
const responsePart = z.looseObject({
  text: z.string().optional(),
  inlineData: z.looseObject({ mimeType: z.string(), data: z.string() }).optional(),
  /** An interim image of a model that thinks: no result. */
  thought: z.boolean().optional(),
});

/** A response, or one event of a stream. Without an image nothing was made, though the status is 200. */
export const generateContentResponseSchema = z.looseObject({
  candidates: z
    .array(
      z.looseObject({
        content: z
          .looseObject({ role: z.string().optional(), parts: z.array(responsePart).optional() })
          .optional(),
        /** `STOP` when all went well; `NO_IMAGE` when the model made none. See `REFUSING_FINISH_REASONS`. */
        finishReason: z.string().optional(),
        finishMessage: z.string().optional(),
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
      totalTokenCount: tokenCount.optional(),
      promptTokensDetails: modalityTokens.optional(),
      candidatesTokensDetails: modalityTokens.optional(),
    })
    .optional(),
  /** The model that really ran. */
  modelVersion: z.string().optional(),
  responseId: z.string().optional(),
});
export type GenerateContentResponse = z.infer<typeof generateContentResponseSchema>;

/** The `status` of a native error. */
export type NativeStatus =
  | "INVALID_ARGUMENT"
  | "UNAUTHENTICATED"
  | "FAILED_PRECONDITION"
  | "PERMISSION_DENIED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "ABORTED"
  | "RESOURCE_EXHAUSTED"
  | "CANCELLED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DEADLINE_EXCEEDED";

/** The body of every error of the native API; also the data of an event when a stream fails on its way. */
export const nativeErrorBodySchema = z.looseObject({
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
export type NativeErrorBody = z.infer<typeof nativeErrorBodySchema>;

/** An entry of `/v1beta/models`. The last four fields are our addition, so that clients know what they may ask for. */
export const nativeModelSchema = z.looseObject({
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
  pricing: z.object({
    currency: z.literal("usd"),
    /** The price of one image, by size. */
    images: z.record(z.string(), z.number()),
    paid: z
      .literal(true)
      .optional()
      .describe("the images cost real money: an upstream makes them, and it is not free"),
    play_money: z.literal(true).optional().describe("the images are drawn, and the prices are no real money"),
  }),
});
export type NativeModel = z.infer<typeof nativeModelSchema>;

/** `GET /v1beta/models`. `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
export const nativeModelListSchema = z.looseObject({
  models: z.array(nativeModelSchema),
  nextPageToken: z.string().optional(),
});
export type NativeModelList = z.infer<typeof nativeModelListSchema>;

/** `GET /v1/models/{id}`: the fields of an OpenAI model and those of a native one. */
export const sharedModelSchema = nativeModelSchema.extend({
  id: z.string(),
  object: z.literal("model"),
  created: z.int(),
  owned_by: z.string(),
});
export type SharedModel = z.infer<typeof sharedModelSchema>;

/** `GET /v1/models`: one response that OpenAI clients (`data`) and native ones (`models`) can read. */
export const sharedModelListSchema = nativeModelListSchema.extend({
  object: z.literal("list"),
  data: z.array(sharedModelSchema),
});
export type SharedModelList = z.infer<typeof sharedModelListSchema>;
