import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "./migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();
const count = (c: ColumnDefinitionBuilder) => c.notNull().defaultTo(0);

/** The health of upstreams, what they were asked, and what each item knows of the one that made it. */
export const upstreams: Migration = {
  name: "006-upstreams",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("provider_health")
      .addColumn("provider", "text", required)
      .addColumn("model", "text", required)
      .addColumn("fingerprint", "text", required)
      .addColumn("state", "text", required)
      .addColumn("until_ms", "bigint")
      .addColumn("facts", "text", required)
      .addPrimaryKeyConstraint("provider_health_key", ["provider", "model"]),
    schema
      .createTable("provider_calls")
      .addColumn("from_ms", "bigint", required)
      .addColumn("provider", "text", required)
      .addColumn("model", "text", required)
      .addColumn("requests", "bigint", count)
      .addColumn("images", "bigint", count)
      .addColumn("errors", "bigint", count)
      .addColumn("maybe_paid_twice", "bigint", count)
      .addColumn("billed_micro_usd", "bigint", count)
      .addColumn("cost_micro_usd", "bigint", count)
      .addColumn("input_tokens", "bigint", count)
      .addColumn("output_tokens", "bigint", count)
      .addColumn("last_success_ms", "bigint")
      .addPrimaryKeyConstraint("provider_calls_key", ["from_ms", "provider", "model"]),
    schema.alterTable("batches").addColumn("upstream", "text", (c) => c.notNull().defaultTo("procedural")),
    schema.alterTable("batches").addColumn("waiting_since_ms", "bigint"),
    schema.alterTable("items").addColumn("provider", "text"),
    schema.alterTable("items").addColumn("failed_at", "text"),
    schema.alterTable("items").addColumn("switches", "integer", count),
    schema.alterTable("items").addColumn("maybe_paid", "text", (c) => c.notNull().defaultTo("no")),
    schema.alterTable("items").addColumn("seed", "bigint"),
    schema.alterTable("items").addColumn("notes", "text"),
    schema.alterTable("items").addColumn("usage", "text"),
  ],
};
