import { z } from "zod";

const count = z.int().min(0);

const fileSchema = z.looseObject({
  path: z.string().describe("from the directory of the run on, with /"),
  image_index: count.optional().describe("which image of the item, from 0; only where not all are here"),
  entry: z.string().optional().describe("the name inside path, when that is a ZIP that was kept"),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: count,
  mime_type: z.string(),
  width: count.nullable(),
  height: count.nullable(),
});

const error = z
  .looseObject({
    code: z.string(),
    message: z.string(),
    source: z.string().nullable().describe("client: found by imgbatch, not by the service"),
    request_id: z.string().optional(),
  })
  .optional()
  .describe("why the image is missing; with the status success, why it could not be fetched");

const common = {
  custom_id: z.string(),
  files: z.array(fileSchema).describe("empty if no image was saved"),
  error,
  notes: z.array(z.string()).optional().describe("differences that a person should know"),
  prompt: z.string().optional(),
  source_id: z
    .string()
    .nullable()
    .optional()
    .describe("the custom_id as typed, which several images may share; null if the prompt has none"),
  file: z.string().optional().describe("the prompt file as typed; <stdin> for standard input"),
  line: z.int().min(1).optional().describe("the line of the prompt in that file"),
  metadata: z.record(z.string(), z.unknown()).optional().describe("the other fields of the prompt"),
};

const ofBatches = z.looseObject({
  ...common,
  provider: z.string().optional().describe("made or refused the image"),
  model_version: z.string().optional().describe("the model as the upstream names it"),
  seed: z.int().optional(),
  upstream_cost: z.number().optional().describe("US dollars, as the upstream reports them"),
  status: z.string().describe("success or failed; another service may have words of its own"),
  batch_id: z.string().describe("empty if the batch is not known"),
  verified: z
    .enum(["sha256", "crc32"])
    .nullable()
    .optional()
    .describe(
      "how the files could be checked: by a hash of the service, or by the checksum of the ZIP; null: only by their size and first bytes, because the service gives no hash",
    ),
});

const ofRealtime = z.looseObject({
  ...common,
  status: z.enum(["success", "failed", "pending"]).describe("pending: not asked for yet"),
  model_version: z
    .string()
    .nullable()
    .describe("the model as the service names it; null without an image, or if it is unknown"),
});

/**
 * A line of `results.jsonl`: one for each image that was asked for, in the order of the input. It is a `ResultLine`
 * in a run of batches, and a `RealtimeLine` in one of `generate --file`, where each image is a request of its own.
 */
export const resultSchema = z.union([
  ofBatches.describe("of submit, retry and download"),
  ofRealtime.describe("of generate --file"),
]);
