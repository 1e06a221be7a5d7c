import { z } from "zod";
import { BATCH_SOURCES, BATCH_STATUSES } from "../statuses.ts";

const unixSeconds = z.int().describe("Unix time in seconds");
const usd = z.number().describe("US dollars, at most six decimals");

const batchErrorSchema = z.object({ code: z.string(), message: z.string(), source: z.string() });

/** A batch as the batch API returns it. */
export const batchObjectSchema = z.object({
  id: z.string(),
  object: z.literal("image.batch"),
  task_name: z.string(),
  status: z.enum(BATCH_STATUSES),
  model: z.string(),
  parent_batch_id: z.string().nullable(),
  metadata: z.record(z.string(), z.string()).nullable(),
  provider: z.string().nullable().describe("name of the provider that makes the images"),
  item_count: z.int().describe("items after expansion of output_count"),
  success_count: z.int(),
  fail_count: z.int(),
  pending_count: z.int(),
  estimated_cost: usd,
  hold_amount: usd,
  actual_cost: usd.nullable().describe("null until the batch is settled"),
  play_money: z.boolean().describe("the images are drawn, and its amounts are no real money"),
  created_at: unixSeconds,
  submitted_at: unixSeconds,
  settled_at: unixSeconds.nullable(),
  downloaded_at: unixSeconds.nullable(),
  output_deleted_at: unixSeconds.nullable(),
  expires_at: unixSeconds
    .nullable()
    .describe("when the outputs will be cleaned up; null while unknown or never"),
  error: batchErrorSchema.nullable().describe("set when the batch as a whole failed"),
  source: z.enum(BATCH_SOURCES).describe("the API that it was made with"),
  waiting: z
    .object({
      code: z.string(),
      message: z.string(),
      until: unixSeconds.nullable().describe("null: until the configuration changes"),
      said: z
        .string()
        .optional()
        .describe("the upstream's own words, at most two lines, for the key of the data directory alone"),
    })
    .nullable()
    .describe("why the items cannot be made now; no try is lost meanwhile"),
  queued_behind: z
    .int()
    .nullable()
    .describe(
      "for a queued batch that was asked for alone: how many open batches of the key and provider come first, at most 1,000; else null",
    ),
  upstream_jobs: z
    .array(
      z.object({
        id: z.string().describe("our id, which the upstream keeps with the job"),
        name: z.string().nullable().describe("the upstream's own name; null while none is known"),
        state: z.string().describe("what is done with it, or the upstream's own word for its state"),
        said: z.string().nullable().describe("what the upstream said last of it"),
        created_at: unixSeconds,
      }),
    )
    .describe("the jobs of the batch that are at work at an upstream"),
});
export type BatchObject = z.infer<typeof batchObjectSchema>;
