import { z } from "zod";
import { DEFAULT_LIMITS, FIXED_LIMITS } from "../../contract/limits.ts";

const label = (maxChars: number) => z.string().max(maxChars).nullish();
const labels = { id: label(FIXED_LIMITS.referenceIdChars), type: label(FIXED_LIMITS.referenceTypeChars) };

const referenceSchema = z.union([
  z.string().min(1).describe("a path, from the prompt file on"),
  z.strictObject({ path: z.string().min(1).describe("from the prompt file on"), ...labels }),
  z.strictObject({
    data: z.string().describe("Base64"),
    mime_type: z.enum(["image/png", "image/jpeg", "image/webp"]),
    ...labels,
  }),
]);

/**
 * A line of a prompt file, for editors and for programs that write such files; `checkRow` decides.
 * Rule: SCHEMA-1.
 */
export const promptSchema = z.strictObject({
  prompt: z.string().min(1).max(DEFAULT_LIMITS.promptChars).describe("what the image shows"),
  custom_id: z
    .string()
    .min(1)
    .max(FIXED_LIMITS.customIdChars)
    .nullish()
    .describe("names the image and its file; unique in a run; made from the position when left out"),
  output_count: z
    .int()
    .min(1)
    .max(DEFAULT_LIMITS.outputCountPerItem)
    .nullish()
    .describe("how many images to make of the prompt; default 1, or what --count says"),
  reference_images: z.array(referenceSchema).nullish().describe("images to start from"),
});
