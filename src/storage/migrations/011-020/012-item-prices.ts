import type { Migration } from "../migration.ts";

/** The sums over the items of a batch are read from this index alone, without the prompts. */
export const itemPrices: Migration = {
  name: "012-item-prices",
  statements: ({ build: { schema } }) => [
    schema
      .createIndex("items_by_price")
      .on("items")
      .columns(["batch_id", "status", "price_micro_usd", "hold_micro_usd"]),
  ],
};
