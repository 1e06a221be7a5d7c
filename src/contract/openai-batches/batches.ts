import { z } from "zod";
import { PATHS } from "../routes.ts";
import { expiresAfterSchema } from "./files.ts";

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
export const createOpenaiBatchSchema = z.object({
  input_file_id: z.string().describe("a file of requests, one a line, of either API for files"),
  endpoint: z.enum(BATCH_ENDPOINTS, `must be ${BATCH_ENDPOINTS.join(" or ")}`),
  completion_window: z.literal("24h", "must be 24h"),
  metadata: metadataSchema.nullish(),
  output_expires_after: expiresAfterSchema.nullish(),
});
export type CreateOpenaiBatch = z.infer<typeof createOpenaiBatchSchema>;

/** The states of a batch in OpenAI's API. */
const OPENAI_BATCH_STATES = [
  "validating",
  "in_progress",
  "finalizing",
  "completed",
  "failed",
  "expired",
  "cancelled",
] as const;
export type OpenaiBatchState = (typeof OPENAI_BATCH_STATES)[number];

const unixSeconds = z.int().describe("Unix seconds");
const fileId = z.string().nullable();

/** A batch as OpenAI's API shows it. */
export const openaiBatchSchema = z.object({
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
export type OpenaiBatch = z.infer<typeof openaiBatchSchema>;

/** A page of a list of OpenAI's API. `last_id` goes into `after` for the next one. */
export interface OpenaiList<T> {
  object: "list";
  data: T[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}
