import { z } from "zod";

const tokens = z.int();
const details = z.object({ text_tokens: tokens, image_tokens: tokens });

const usageSchema = z.object({
  input_tokens: tokens,
  input_tokens_details: details,
  output_tokens: tokens,
  output_tokens_details: details,
  total_tokens: tokens,
});
export type ImagesUsage = z.infer<typeof usageSchema>;

const facts = {
  size: z.string().describe("`WIDTHxHEIGHT` of the image as it is"),
  quality: z.literal("auto"),
  background: z.literal("auto"),
  output_format: z.enum(["png", "jpeg", "webp"]),
  usage: usageSchema,
};

/** The answer of both operations. */
export const imagesSchema = z.object({
  created: z.int().describe("Unix seconds"),
  data: z
    .array(z.object({ b64_json: z.string().optional(), url: z.string().optional() }))
    .describe("the images that were made: one at least, and as many as `n` says unless some failed"),
  ...facts,
});
export type Images = z.infer<typeof imagesSchema>;

/** One event of a stream: a whole image. */
export const imageEventSchema = z.object({
  type: z.enum(["image_generation.completed", "image_edit.completed"]),
  b64_json: z.string(),
  created_at: z.int().describe("Unix seconds"),
  ...facts,
});
export type ImageEvent = z.infer<typeof imageEventSchema>;
