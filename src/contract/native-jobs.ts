import { z } from "zod";
import { generateContentResponseSchema } from "./native-api.ts";

/** The client's description of a file when it begins an upload. Null stands for an absent field; unknown fields are ignored. */
export const startUploadSchema = z.object({
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
export const nativeFileSchema = z.looseObject({
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
export type NativeFile = z.infer<typeof nativeFileSchema>;

/** The end of an upload. */
export const uploadedFileSchema = z.looseObject({ file: nativeFileSchema.optional() });
export type UploadedFile = z.infer<typeof uploadedFileSchema>;

/** `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
export const nativeFileListSchema = z.looseObject({
  files: z.array(nativeFileSchema).optional(),
  nextPageToken: z.string().optional(),
});
export type NativeFileList = z.infer<typeof nativeFileListSchema>;

/**
 * Batch jobs of the native protocol: many `generateContent` requests as one job, whose results come later. Field names are
 * lowerCamelCase here; the service also takes them in snake_case.
 */

/** The body of `:batchGenerateContent`. Null stands for an absent field. Unknown fields are ignored. */
export const createJobSchema = z.object({
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
export type JobState = (typeof JOB_STATES)[number];

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
export type JobOutput = z.infer<typeof jobOutputSchema>;

const counter = z.string().regex(/^\d+$/).optional();

/** A job. Counters are text, and those that are 0 are left out. */
export const jobSchema = z.looseObject({
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
export type Job = z.infer<typeof jobSchema>;

/** `GET /v1beta/batches`. `nextPageToken` goes into `pageToken` of the next request; absent on the last page. */
export const jobListSchema = z.looseObject({
  operations: z.array(jobSchema),
  nextPageToken: z.string().optional(),
});
export type JobList = z.infer<typeof jobListSchema>;

/** A line of a result file: a response or an error, and the key of the request's line. */
export const resultLineSchema = z.looseObject({
  response: generateContentResponseSchema.optional(),
  error: rpcErrorSchema.optional(),
  key: z.unknown().optional(),
});
