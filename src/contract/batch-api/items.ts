import { z } from "zod";
import { ITEM_STATUSES } from "../statuses.ts";

/** A reference image of an item. Its index is its position in the list. */
const itemReferenceSchema = z.object({
  id: z.string().nullable(),
  type: z.string().nullable(),
  mime_type: z.string(),
  storage_uri: z.string().nullable().describe("set when it is kept elsewhere: then it has no bytes here"),
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
export const itemObjectSchema = z.object({
  custom_id: z.string(),
  status: z.enum(ITEM_STATUSES),
  prompt_preview: z.string(),
  mime_type: z.string().nullable(),
  file_extension: z.string().nullable(),
  image_count: z.int(),
  model_version: z.string().nullable(),
  provider: z.string().nullable().describe("made or refused the image; null while pending"),
  seed: z.int().nullable().describe("made the image, when the upstream uses or reports one"),
  upstream_cost: z.number().nullable().describe("US dollars, as the upstream reports them"),
  notes: z.array(z.string()).describe("differences that a person should know"),
  error: z.object({ code: z.string(), message: z.string(), source: z.string() }).nullable(),
  cost: z.number().nullable().describe("US dollars that the image costs; null without one"),
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
export const itemThumbnailSchema = z.object({
  custom_id: z.string(),
  data: z.string().nullable().describe("standard Base64 of a WebP; null when there is none yet"),
});
export type ItemThumbnail = z.infer<typeof itemThumbnailSchema>;

/** How a note begins when an upstream may bill an item twice. */
export const MAY_BE_PAID_TWICE = "may be paid twice";
export const PAID_TWICE_NOTE = `${MAY_BE_PAID_TWICE}: the outcome of a request is unknown, and another one was sent after it`;

/** The envelope of every list; `next_cursor` goes into the query parameter `cursor` of the next page. */
export interface ListEnvelope<T> {
  object: "list";
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}
