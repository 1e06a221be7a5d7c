import { z } from "zod";
import { BATCH_STATUSES } from "../statuses.ts";
import { providerSchema } from "./provider.ts";

/** The whole service, as `GET /v1/console/service` shows it to its owner. */
export const overviewSchema = z.object({
  object: z.literal("service.overview"),
  data_directory: z.string(),
  started_at: z.int().describe("Unix time in seconds"),
  disk_free_bytes: z.int().nullable().describe("null while it cannot be read"),
  queue: z.object({
    running: z.int().describe("images that are being made"),
    waiting: z.int().describe("images of batches that are not made yet"),
    concurrency: z.int().describe("the most images that are made at once"),
    paused: z.boolean(),
  }),
  batches: z.partialRecord(z.enum(BATCH_STATUSES), z.int()).describe("how many have each status"),
  providers: z.array(providerSchema),
  requests: z
    .array(
      z.object({
        at: z.number().describe("Unix time in seconds, with milliseconds"),
        method: z.string(),
        path: z.string(),
        status: z.int(),
        duration_ms: z.int(),
        key: z.string().nullable().describe("the first characters of the key"),
      }),
    )
    .describe("the last requests of all keys, the newest first"),
});
export type OverviewObject = z.infer<typeof overviewSchema>;
