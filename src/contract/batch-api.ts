import { z } from "zod";
import { BACKGROUNDS, MOST_SEED, type PixelSizes, SIZE_TIERS } from "./image-formats.ts";
import { ANNOUNCED_LIMITS, FIXED_LIMITS } from "./limits.ts";
import { BATCH_SOURCES, BATCH_STATUSES, ITEM_STATUSES } from "./statuses.ts";

/**
 * The types of a create request's body. Rules about values (lengths, limits, uniqueness) follow in a
 * fixed order, each with its own error code, where the request is checked. Null stands for an absent optional field.
 */
const referenceImageSchema = z.object({
  id: z.string().nullish(),
  type: z.string().nullish(),
  mime_type: z.string().nullish().describe("required but with `sha256`"),
  data: z.string().nullish().describe("standard Base64, no data URL"),
  storage_uri: z.string().nullish().describe("refused: send the bytes in `data`"),
  sha256: z
    .string()
    .nullish()
    .describe("instead of all others but id and type: the bytes of an earlier reference of this request"),
});

/** What an item asks for besides its prompt. An extension, which the list of models announces. */
const itemOptionsSchema = z.object({
  aspect_ratio: z.string().nullish().describe("width to height, such as 16:9; a ratio of the model"),
  image_size: z
    .string()
    .nullish()
    .describe(
      "512, 1K, 2K or 4K, or exact pixels such as 1536x1024, as far as the model takes them; default: 1K",
    ),
  quality: z.string().nullish().describe("a word of the model; default: its default quality"),
  background: z.enum(BACKGROUNDS).nullish().describe("default: auto; transparent needs PNG or WebP"),
  seed: z.int().min(0).max(MOST_SEED).nullish().describe("of the first output; each further one adds 1"),
  negative_prompt: z.string().nullish().describe("what the image must not show"),
});
export type ItemOptions = z.infer<typeof itemOptionsSchema>;
export const ITEM_OPTIONS = Object.keys(itemOptionsSchema.shape) as (keyof ItemOptions)[];

const createItemSchema = z.object({
  custom_id: z.string().nullish(),
  prompt: z.string(),
  output_count: z.int().nullish(),
  reference_images: z.array(referenceImageSchema).nullish(),
  options: itemOptionsSchema.nullish(),
});

const createBatchSchema = z.object({
  model: z.string(),
  task_name: z.string().nullish(),
  parent_batch_id: z.string().nullish(),
  items: z.array(createItemSchema).min(1),
  response_mime_type: z.string().nullish(),
  aspect_ratio: z.unknown().optional(),
  image_size: z.string().nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
  provider: z
    .string()
    .nullish()
    .describe("the provider that is to make the images; default: the first that serves the model"),
});

/** The body that a client sends. */
export type CreateBatchBody = z.infer<typeof createBatchSchema>;
export type CreateItemBody = CreateBatchBody["items"][number];

/** The body of a retry, which may be left out. */
const retryBatchSchema = z.object({
  custom_ids: z
    .array(z.string())
    .min(1)
    .nullish()
    .describe("the failed items to make again; all that can be made again when absent"),
});

const unixSeconds = z.int().describe("Unix time in seconds");
const usd = z.number().describe("US dollars, at most six decimals");

const batchErrorSchema = z.object({ code: z.string(), message: z.string(), source: z.string() });

/** A batch as the batch API returns it. */
const batchObjectSchema = z.object({
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
      until: unixSeconds.nullable().describe("null: until the configuration changes, or workers run"),
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
  in_jobs: z
    .literal(true)
    .optional()
    .describe("its images are made by jobs of an upstream, which can be ended; absent for others"),
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
  get retries() {
    return z
      .array(batchObjectSchema)
      .optional()
      .describe(
        `with \`include=retries\`: the batches that make its failed items again, the newest ${FIXED_LIMITS.batchPageMax} at most, oldest first`,
      );
  },
});
export type BatchObject = z.infer<typeof batchObjectSchema>;

/** A reference image of an item. Its index is its position in the list. */
const itemReferenceSchema = z.object({
  id: z.string().nullable(),
  type: z.string().nullable(),
  mime_type: z.string(),
});

/** An image of an item. Its index is its position in the list. */
const itemImageSchema = z.object({
  mime_type: z.string(),
  width: z.int().describe("pixels"),
  height: z.int().describe("pixels"),
  size: z.int().describe("bytes"),
  sha256: z.string(),
});

/** Facts of items that a list has only when it is asked for them. */
export const ITEM_EXTRAS = ["prompt", "references", "images", "retries"] as const;
export type ItemExtra = (typeof ITEM_EXTRAS)[number];

/** An item of a batch as the item list returns it. */
const itemObjectSchema = z.object({
  custom_id: z.string(),
  status: z.enum(ITEM_STATUSES),
  prompt_preview: z.string(),
  mime_type: z.string().nullable(),
  file_extension: z.string().nullable(),
  image_count: z.int(),
  model_version: z.string().nullable(),
  provider: z.string().nullable().describe("made or refused the image; null while pending"),
  seed: z.int().nullable().describe("made the image, when the upstream uses or reports one"),
  upstream_cost: z
    .number()
    .nullable()
    .describe(
      "US dollars: the bill of the upstream for all requests for the image, from the dollars or the tokens that it reports; null: not known",
    ),
  took_ms: z.int().nullable().describe("from the request to its answer; null for none, and in a job"),
  finished_at: z.number().nullable().describe("when its image or its failure was recorded; null before"),
  notes: z.array(z.string()).describe("differences that a person should know"),
  error: z.object({ code: z.string(), message: z.string(), source: z.string() }).nullable(),
  cost: z.number().nullable().describe("US dollars that the image costs; null without one"),
  may_be_billed: z
    .number()
    .optional()
    .describe(
      "US dollars that the upstream may bill, at most and by the list price, for requests whose answers were lost; absent for none",
    ),
  options: itemOptionsSchema.partial().nullable().describe("what the item asks for; null for nothing"),
  prompt: z.string().optional().describe("the whole prompt, with `include=prompt`"),
  references: z.array(itemReferenceSchema).optional().describe("with `include=references`"),
  images: z.array(itemImageSchema).optional().describe("with `include=images`; empty without an image"),
  retried_in: z
    .string()
    .nullable()
    .optional()
    .describe(
      "with `include=retries`: the newest batch that makes this failed item again, where it is pending or done; null without one",
    ),
});
export type ItemObject = z.infer<typeof itemObjectSchema>;

/** The first image of an item as a list of small images returns it. */
const itemThumbnailSchema = z.object({
  custom_id: z.string(),
  data: z.string().nullable().describe("standard Base64 of a WebP; null when there is none yet"),
});
export type ItemThumbnail = z.infer<typeof itemThumbnailSchema>;

/** How a note begins when an upstream may bill an item twice. */
export const MAY_BE_PAID_TWICE = "may be paid twice";
export const PAID_TWICE_NOTE = `${MAY_BE_PAID_TWICE}: the outcome of a request is unknown, and another one was sent after it`;

/** How a note of a failed item begins whose upstream may bill it all the same. */
export const MAY_BE_BILLED = "may be billed";
export const BILLED_NOTE = `${MAY_BE_BILLED}: the upstream was asked for it, and has returned no result`;

/** The envelope of every list; `next_cursor` goes into the query parameter `cursor` of the next page. */
export interface ListEnvelope<T> {
  object: "list";
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}

/** The exact pixels that a list of models announces. */
export const announcedPixelsSchema = z
  .union([
    z.literal("any"),
    z.array(z.string()),
    z.object({
      multiple_of: z.int(),
      longest_px: z.int(),
      least_pixels: z.int(),
      most_pixels: z.int(),
      most_ratio: z.number(),
    }),
  ])
  .nullable()
  .describe(
    "the exact pixels that an image may be asked for in, besides; null: those of the sizes and ratios alone",
  );

/** An entry of the batch model list. `provider` and `pricing` are additions: clients can estimate before they send. */
const batchModelSchema = z.object({
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
  options: z
    .object({
      aspect_ratio: z.array(z.string()),
      image_size: z.array(z.enum(SIZE_TIERS)),
      pixels: announcedPixelsSchema,
      quality: z.array(z.string()),
      default_quality: z.string().nullable().describe("of an item that names none"),
      background: z.array(z.enum(BACKGROUNDS)),
      seed: z.boolean(),
      max_seed: z.int().describe("the largest seed, also of the last output of an item"),
      negative_prompt: z.boolean(),
    })
    .describe("the values that `items[].options` may have"),
  prices: z
    .array(
      z.object({
        image_size: z.enum(SIZE_TIERS),
        quality: z.string().nullable(),
        batch_image: z.number(),
        batch_hold: z.number(),
      }),
    )
    .describe("US dollars an image, as in `pricing`"),
});
export type BatchModel = z.infer<typeof batchModelSchema>;
type AnnouncedPixels = z.infer<typeof announcedPixelsSchema>;

/** Returns the pixels that a model can be asked for as the list of models announces them. */
export function announcedPixels(pixels: PixelSizes | "any" | null): AnnouncedPixels {
  if (pixels === null || pixels === "any") return pixels;
  if (!("multipleOf" in pixels)) return [...pixels];
  const { multipleOf, longestPx, leastPixels, mostPixels, mostRatio } = pixels;
  return {
    multiple_of: multipleOf,
    longest_px: longestPx,
    least_pixels: leastPixels,
    most_pixels: mostPixels,
    most_ratio: mostRatio,
  };
}

/** Returns the pixels that an entry of a list of models announces; null where it announces none that can be read. */
export function readAnnouncedPixels(value: unknown): PixelSizes | "any" | null {
  const pixels = announcedPixelsSchema.safeParse(value).data ?? null;
  if (pixels === null || pixels === "any" || Array.isArray(pixels)) return pixels;
  return {
    multipleOf: pixels.multiple_of,
    longestPx: pixels.longest_px,
    leastPixels: pixels.least_pixels,
    mostPixels: pixels.most_pixels,
    mostRatio: pixels.most_ratio,
  };
}

/** The schema of a list with its envelope. */
export const listOf = <T extends z.ZodType>(element: T) =>
  z.object({
    object: z.literal("list"),
    data: z.array(element),
    has_more: z.boolean(),
    next_cursor: z.string().nullable().describe("goes into `cursor` for the next page"),
  });

/** The schemas of the bodies, by their names in the OpenAPI document. */
export const batchSchemas = {
  Batch: batchObjectSchema,
  BatchList: listOf(batchObjectSchema),
  Item: itemObjectSchema,
  ItemList: listOf(itemObjectSchema),
  ThumbnailList: listOf(itemThumbnailSchema),
  BatchModel: batchModelSchema,
  BatchModelList: listOf(batchModelSchema).extend({
    limits: z
      .partialRecord(z.enum(Object.keys(ANNOUNCED_LIMITS)), z.int())
      .optional()
      .describe("an addition: what a batch may hold here"),
    budgets: z
      .array(
        z.object({
          upstream: z.string().nullable().describe("the provider whose images count; null: those of all"),
          per: z.enum(["day", "month"]).describe("of UTC"),
          usd: z.number(),
          left: z.number().describe("what is neither spent nor held, in US dollars"),
        }),
      )
      .optional()
      .describe("an addition: the budgets that batches of this key count in; left out without any"),
  }),
  CreateBatch: createBatchSchema,
  RetryBatch: retryBatchSchema,
  CreateItem: createItemSchema,
  ReferenceImage: referenceImageSchema,
};

/** Every error about a missing or unusable recording contains these words: then another prompt does not help. */
export const IN_REPLAY_DIRECTORY = "in the replay directory";
