import { z } from "zod";

/** Why a client of OpenAI's API uploads a file: the input of a batch, or an image for edits. */
export const FILE_PURPOSES = ["batch", "vision", "user_data"] as const;

/** The seconds that a client may ask a file to be kept. */
const KEPT_SECONDS = { min: 3600, max: 2_592_000 } as const;

const secondsError = `must be ${KEPT_SECONDS.min} to ${KEPT_SECONDS.max}`;
const seconds = z.int(secondsError).min(KEPT_SECONDS.min, secondsError).max(KEPT_SECONDS.max, secondsError);

/** When a file expires: this many seconds after it was made. */
export const expiresAfterSchema = z.object({
  anchor: z.literal("created_at", "must be created_at"),
  seconds,
});

/** The fields of the form of `POST /v1/files`, besides the file. */
export const uploadFieldsSchema = z.object({
  purpose: z.enum(FILE_PURPOSES, `must be one of ${FILE_PURPOSES.join(", ")}`),
  expires_after: expiresAfterSchema.optional(),
});

/** The same as the form has it. */
export const uploadFormSchema = z.object({
  purpose: z.enum(FILE_PURPOSES),
  file: z.string().meta({ format: "binary" }),
  "expires_after[anchor]": z.string().optional().describe("`created_at`"),
  "expires_after[seconds]": z.string().optional().describe("how long the file is kept; absent: 48 hours"),
});

const unixSeconds = z.int().describe("Unix seconds");

/** A file of OpenAI's API. */
export const openaiFileSchema = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.int(),
  created_at: unixSeconds,
  expires_at: unixSeconds.optional(),
  filename: z.string(),
  purpose: z.enum([...FILE_PURPOSES, "batch_output"]),
  status: z.literal("processed"),
});
export type OpenaiFile = z.infer<typeof openaiFileSchema>;

export const deletedFileSchema = z.object({
  id: z.string(),
  object: z.literal("file"),
  deleted: z.literal(true),
});
export type DeletedFile = z.infer<typeof deletedFileSchema>;
