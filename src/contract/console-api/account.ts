import { z } from "zod";

const usd = z.number().describe("US dollars, at most six decimals");
const unixSeconds = z.int().describe("Unix time in seconds");

const moneySchema = z.object({
  balance: usd.describe("US dollars that can be spent now, without what is held"),
  held: usd.describe("US dollars held for batches that are not settled, and for requests at work"),
});

const limitsSchema = z
  .object({
    items_per_batch: z.int(),
    output_images_per_batch: z.int(),
    output_count_per_item: z.int(),
    prompt_chars: z.int(),
    reference_image_bytes: z.int(),
    reference_images_per_batch: z.int(),
    reference_bytes_per_batch: z.int(),
    create_body_bytes: z.int(),
    zip_items: z.int(),
  })
  .describe("how much goes into one batch, one prompt and one ZIP");

/** The account of a key, as `GET /v1/account` returns it. */
export const accountSchema = moneySchema.extend({
  object: z.literal("account"),
  play_money: z.boolean().describe("its money is play money, which buys drawings only"),
  real_money: moneySchema.nullable().describe("the account that pays for images of upstreams in its place"),
  key: z.object({ name: z.string(), prefix: z.string().describe("the first characters of the key") }),
  owner: z.boolean().describe("the key is that of `credentials.json`: it sees the whole service"),
  limits: limitsSchema,
});
export type AccountObject = z.infer<typeof accountSchema>;

/** The payments of a key for one model on one day, with real money or with play money. */
export const usageSchema = z.object({
  day: z.string().describe("a day of UTC such as 2030-01-31; batches count when they are settled"),
  model: z.string(),
  image_count: z.int(),
  cost: usd,
  play_money: z.boolean().describe("the images are drawn, and the cost is no real money"),
});
export type UsageObject = z.infer<typeof usageSchema>;

/** A movement of money. */
export const ledgerEntrySchema = z.object({
  kind: z.enum(["top_up", "hold", "capture", "release", "charge", "grant", "take_back"]),
  amount: usd,
  balance_change: usd,
  held_change: usd,
  balance: usd.describe("the balance of the account after the entry"),
  play_money: z.boolean().describe("which of the two accounts it belongs to"),
  batch_id: z.string().nullable().describe("null without a batch, and for a batch of another key"),
  created_at: unixSeconds,
});
export type LedgerEntryObject = z.infer<typeof ledgerEntrySchema>;
