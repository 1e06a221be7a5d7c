import { z } from "zod";

/** The most images of one request. */
const MAX_COUNT = 10;

const countError = `must be 1 to ${MAX_COUNT}`;
const percentError = "must be 0 to 100";

/** Fields of both operations. A null or empty field is an absent one; a number or truth value may come as its text. */
const common = {
  prompt: z.string().describe("what to draw, or how to edit"),
  model: z
    .string()
    .nullish()
    .describe("a model of the list, or a name that stands for one; absent: the first"),
  n: z.int().min(1, countError).max(MAX_COUNT, countError).nullish().describe("how many images; absent: 1"),
  size: z
    .string()
    .nullish()
    .describe(
      "`WIDTHxHEIGHT`: the nearest ratio and size of the model is made; `auto` or absent: the default",
    ),
  response_format: z.string().nullish().describe("`b64_json` (default) or `url`"),
  output_format: z.string().nullish().describe("`png` (default), `jpeg` or `webp`"),
  output_compression: z
    .int()
    .min(0, percentError)
    .max(100, percentError)
    .nullish()
    .describe("the quality of a JPEG or WebP in percent"),
  stream: z.boolean().nullish().describe("an event for each image; then `response_format` does not count"),
};

/** The body of `POST /v1/images/generations`. Unknown fields are ignored. */
export const generateImagesSchema = z.object(common);

const sentImage = z.object({
  image_url: z.string().nullish().describe("a data URL; nothing is fetched from anywhere"),
  file_id: z.string().nullish().describe("the id of an uploaded file of the same key"),
});

/** The body of `POST /v1/images/edits` as JSON. Unknown fields are ignored. */
export const editImagesSchema = z.object({
  ...common,
  images: z.array(sentImage).describe("each with one of the two fields"),
});
export type EditImages = z.infer<typeof editImagesSchema>;
export type ImagesFields = z.infer<typeof generateImagesSchema>;

/** The same as a form. Fields of the form are texts. */
export const editImagesFormSchema = z.object({
  ...common,
  image: z.array(z.string().meta({ format: "binary" })).describe("one image or several, also as `image[]`"),
});
