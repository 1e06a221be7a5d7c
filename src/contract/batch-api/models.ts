import { z } from "zod";

/** An entry of the batch model list. `provider` and `pricing` are additions: clients can estimate before they send. */
export const batchModelSchema = z.object({
  id: z.string(),
  object: z.literal("image.batch.model"),
  provider: z.string().describe("makes the images of a batch that is created now"),
  max_reference_images: z.int(),
  pricing: z.object({
    currency: z.literal("usd"),
    batch_image: z.number().describe("what one image of a batch costs"),
    batch_hold: z.number().describe("what is held for one image until the batch is settled"),
    paid: z
      .literal(true)
      .optional()
      .describe("the images cost real money: an upstream makes them, and it is not free"),
    play_money: z.literal(true).optional().describe("the images are drawn, and the prices are no real money"),
  }),
});
export type BatchModel = z.infer<typeof batchModelSchema>;
