import { z } from "zod";

/** The body of a retry, which may be left out. */
export const retryBatchSchema = z.object({
  custom_ids: z
    .array(z.string())
    .min(1)
    .nullish()
    .describe("the failed items to make again; all that can be made again when absent"),
});
export type RetryBatchBody = z.infer<typeof retryBatchSchema>;
