import { z } from "zod";
import { BACKGROUNDS, FILE_FORMATS, FITS, MOST_SEED } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS, FIXED_LIMITS } from "../../contract/limits.ts";
import { POSITIONS } from "../../prompts/wanted-files.ts";

/** Not only blanks, and no NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
const PROMPT = /^(?=\s*\S)[^\u0000]*$/;
/** As `customIdProblem` says; in ranges, since not every validator knows the names of kinds of characters. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
const CUSTOM_ID = /^(?!\.\.?$)[^\u0000-\u001f\u007f-\u009f/\\]+$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

const label = (maxChars: number) => z.string().max(maxChars).nullish();
const labels = { id: label(FIXED_LIMITS.referenceIdChars), type: label(FIXED_LIMITS.referenceTypeChars) };

const referenceSchema = z.union([
  z.string().min(1).describe("a path, from the prompt file on"),
  z.strictObject({ path: z.string().min(1).describe("from the prompt file on"), ...labels }),
  z.strictObject({
    data: z.string().min(4).regex(BASE64).describe("Base64"),
    mime_type: z.enum(["image/png", "image/jpeg", "image/webp"]),
    ...labels,
  }),
]);

const value = z.union([z.string(), z.number()]);

/**
 * A line of a prompt file, for editors and for programs that write such files; `checkRow` decides. It also refuses
 * unknown fields that look like misspelt ones.
 */
export const promptSchema = z.looseObject({
  prompt: z.string().min(1).max(DEFAULT_LIMITS.promptChars).regex(PROMPT).describe("what the image shows"),
  vars: z
    .record(z.string(), z.union([value, z.array(value).min(1)]))
    .nullish()
    .describe("{{name}} in a text stands for its value; each value of a list, or of @FILE, makes a prompt"),
  custom_id: z
    .string()
    .min(1)
    .max(FIXED_LIMITS.customIdChars)
    .regex(CUSTOM_ID)
    .nullish()
    .describe("names the image and its file; unique in a run; made from the position when left out"),
  output_count: z
    .int()
    .min(1)
    .max(DEFAULT_LIMITS.outputCountPerItem)
    .nullish()
    .describe("how many images to make from the prompt; default: --count, else 1"),
  reference_images: z.array(referenceSchema).nullish().describe("images to start from"),
  model: z.string().min(1).nullish().describe("the model, where it is another than that of the run"),
  aspect_ratio: z
    .string()
    .regex(/^[1-9]\d?:[1-9]\d?$/)
    .nullish()
    .describe("width:height, such as 16:9, as far as the model has it"),
  size: z
    .string()
    .nullish()
    .describe("512, 1K, 2K or 4K, or pixels such as 1536x1024, if the model makes them; default: 1K"),
  quality: z.string().min(1).nullish().describe("a word of the model, such as low; default: the model's own"),
  background: z.enum(BACKGROUNDS).nullish().describe("transparent needs PNG or WebP; default: auto"),
  seed: z.int().min(0).max(MOST_SEED).nullish().describe("of the first image; each further one adds 1"),
  negative_prompt: z.string().nullish().describe("what the image must not show"),
  file: z
    .string()
    .min(1)
    .nullish()
    .describe(
      "a file that is made of the picture, from the prompt file on, such as public/blog/hero.webp; {{n}} stands for the number of the image, {{model}} for its model",
    ),
  pixels: z
    .string()
    .nullish()
    .describe("of the file: 1200x630, or one side: 1200x, x630; default: those of the picture"),
  fit: z.enum(FITS).nullish().describe("how the picture comes into both sides of pixels; default: cover"),
  position: z
    .string()
    .nullish()
    .describe(
      `which part stays, or the place within a border: ${POSITIONS.join(", ")}; default: attention, else center`,
    ),
  format: z.enum(FILE_FORMATS).nullish().describe("of the file; default: by the ending of its name"),
  encode_quality: z.int().min(1).max(100).nullish().describe("of the file, unless it is a PNG"),
  trim: z.boolean().nullish().describe("cut the flat or transparent border off the picture first"),
  also: z
    .union([z.string(), z.array(z.string()).max(100)])
    .nullish()
    .describe('more files of the same picture beside file, such as ["hero@2x.webp 2400x1260", "hero.jpg"]'),
  metadata: z
    .record(z.string(), z.unknown())
    .nullish()
    .describe("kept for the results, with all fields that are not known here; decides nothing"),
});
