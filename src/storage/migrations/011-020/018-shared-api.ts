import { type ColumnDefinitionBuilder, sql } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** The facts that several processes that take requests must share. */
export const sharedApi: Migration = {
  name: "018-shared-api",
  isAdditive: true,
  statements: ({ build: { schema }, dialect }) => {
    const counts = schema.createTable("request_counts");
    return [
      schema
        .createTable("timed_secrets")
        .addColumn("id", "text", (c) => c.primaryKey())
        .addColumn("kind", "text", required)
        .addColumn("api_key_id", "text", required)
        .addColumn("batch_id", "text")
        .addColumn("expires_at_ms", "bigint", required),
      schema.createIndex("timed_secrets_by_key").on("timed_secrets").columns(["kind", "api_key_id"]),
      schema
        .createTable("uploads")
        .addColumn("id", "text", (c) => c.primaryKey())
        .addColumn("api_key_id", "text", required)
        .addColumn("facts", "text", required)
        .addColumn("announced_bytes", "bigint")
        .addColumn("received_bytes", "bigint", required)
        .addColumn("parts", "text", required)
        .addColumn("file_id", "text")
        .addColumn("touched_at_ms", "bigint", required),
      schema.createIndex("uploads_by_key").on("uploads").column("api_key_id"),
      // Not worth a write to the log: after a crash the counts begin anew.
      (dialect === "postgres" ? counts.modifyFront(sql`unlogged`) : counts)
        .addColumn("api_key_id", "text", required)
        .addColumn("second", "bigint", required)
        .addColumn("count", "bigint", required)
        .addPrimaryKeyConstraint("request_counts_key", ["api_key_id", "second"]),
    ];
  },
};
