import { z } from "zod";
import { ITEM_STATUSES } from "../statuses.ts";

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
});
export type ItemObject = z.infer<typeof itemObjectSchema>;

/** How a note begins when an upstream may bill an item twice. */
export const MAY_BE_PAID_TWICE = "may be paid twice";

/** The envelope of every list; `next_cursor` goes into the query parameter `cursor` of the next page. */
export interface ListEnvelope<T> {
  object: "list";
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}
