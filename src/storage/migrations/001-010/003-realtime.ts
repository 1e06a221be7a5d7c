import { type ColumnDefinitionBuilder, sql } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();
const keyOf = (c: ColumnDefinitionBuilder) => required(c).references("api_keys.id");
const accountOf = (c: ColumnDefinitionBuilder) => required(c).references("accounts.id");
const amount = (c: ColumnDefinitionBuilder) => required(c).check(sql`amount_micro_usd >= 0`);

/** Holds of real-time requests at work, and what their images cost. */
export const realtime: Migration = {
  name: "003-realtime",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("realtime_holds")
      .addColumn("id", "text", (c) => c.primaryKey())
      .addColumn("api_key_id", "text", keyOf)
      .addColumn("account_id", "text", accountOf)
      .addColumn("amount_micro_usd", "bigint", amount)
      .addColumn("created_at_ms", "bigint", required),
    schema
      .createTable("usage_records")
      .addColumn("seq", "integer", (c) => c.primaryKey().autoIncrement())
      .addColumn("realtime_id", "text", required)
      .addColumn("image_index", "integer", required)
      .addColumn("api_key_id", "text", keyOf)
      .addColumn("account_id", "text", accountOf)
      .addColumn("model", "text", required)
      .addColumn("executed_model", "text", required)
      .addColumn("provider", "text", required)
      .addColumn("size", "text", required)
      .addColumn("ratio", "text", required)
      .addColumn("mime_type", "text", required)
      .addColumn("width_px", "integer", required)
      .addColumn("height_px", "integer", required)
      .addColumn("size_bytes", "bigint", required)
      .addColumn("amount_micro_usd", "bigint", amount)
      .addColumn("created_at_ms", "bigint", required)
      .addUniqueConstraint("usage_image", ["realtime_id", "image_index"]),
    schema.createIndex("usage_by_account").on("usage_records").columns(["account_id", "seq"]),
  ],
};
