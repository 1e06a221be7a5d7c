import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** Files that keys have uploaded to the vendor's API. */
export const files: Migration = {
  name: "007-files",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("files")
      .addColumn("seq", "integer", (c) => c.primaryKey().autoIncrement())
      .addColumn("api_key_id", "text", (c) => required(c).references("api_keys.id"))
      .addColumn("id", "text", required)
      .addColumn("display_name", "text")
      .addColumn("mime_type", "text", required)
      .addColumn("size_bytes", "bigint", required)
      .addColumn("sha256", "text", required)
      .addColumn("blob_key", "text", (c) => required(c).unique())
      .addColumn("created_at_ms", "bigint", required)
      .addColumn("expires_at_ms", "bigint", required)
      .addUniqueConstraint("files_of_key", ["api_key_id", "id"]),
    schema.createIndex("files_by_expiry").on("files").column("expires_at_ms"),
  ],
};
