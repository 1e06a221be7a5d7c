import type { Migration } from "../migration.ts";

/** Items that differ from the rest of their batch. */
export const lines: Migration = {
  name: "008-lines",
  statements: ({ build: { schema } }) => [
    schema.alterTable("items").addColumn("tier", "text"),
    schema.alterTable("items").addColumn("ratio", "text"),
    schema.alterTable("items").addColumn("asked_mime_type", "text"),
    schema.alterTable("items").addColumn("earlier", "text"),
    schema.alterTable("items").addColumn("price_micro_usd", "bigint"),
    schema.alterTable("items").addColumn("hold_micro_usd", "bigint"),
    schema.alterTable("items").addColumn("client_key", "text"),
    schema.alterTable("batches").addColumn("source", "text", (c) => c.notNull().defaultTo("batch")),
    schema.alterTable("batches").addColumn("input", "text"),
    schema.alterTable("batches").addColumn("input_read_at_ms", "bigint"),
  ],
};
