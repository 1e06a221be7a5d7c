import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** Images that can be fetched by their names for some time. */
export const linkedImages: Migration = {
  name: "013-linked-images",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("linked_images")
      .addColumn("seq", "integer", (c) => c.primaryKey().autoIncrement())
      .addColumn("id", "text", (c) => required(c).unique())
      .addColumn("mime_type", "text", required)
      .addColumn("size_bytes", "bigint", required)
      .addColumn("expires_at_ms", "bigint", required),
    schema.createIndex("linked_images_by_expiry").on("linked_images").column("expires_at_ms"),
  ],
};
