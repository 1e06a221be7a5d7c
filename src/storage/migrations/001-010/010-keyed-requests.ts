import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** Real-time requests with an idempotency key, and what their answers were. */
export const keyedRequests: Migration = {
  name: "010-keyed-requests",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("keyed_requests")
      .addColumn("api_key_id", "text", (c) => required(c).references("api_keys.id"))
      .addColumn("key", "text", required)
      .addColumn("fingerprint", "text", required)
      .addColumn("realtime_id", "text", required)
      .addColumn("paid_runs", "integer", required)
      .addColumn("sha256", "text")
      .addColumn("error", "text")
      .addColumn("expires_at_ms", "bigint", required)
      .addPrimaryKeyConstraint("keyed_request", ["api_key_id", "key"]),
    schema.createIndex("keyed_requests_by_expiry").on("keyed_requests").column("expires_at_ms"),
  ],
};
