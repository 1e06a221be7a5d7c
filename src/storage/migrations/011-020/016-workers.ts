import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** The processes that are at work, and which of them has an item, a batch or the hold of a real-time request. */
export const workers: Migration = {
  name: "016-workers",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("workers")
      .addColumn("id", "text", (c) => c.primaryKey())
      .addColumn("role", "text", required)
      .addColumn("version", "text", required)
      .addColumn("providers", "text", required)
      .addColumn("is_paused", "integer", required)
      .addColumn("seen_at_ms", "bigint", required),
    schema.alterTable("items").addColumn("lease_worker", "text"),
    schema.alterTable("batches").addColumn("tender", "text"),
    schema.alterTable("realtime_holds").addColumn("worker", "text"),
  ],
};
