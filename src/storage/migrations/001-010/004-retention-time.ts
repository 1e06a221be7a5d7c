import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** Which time retention goes by. */
export const retentionTime: Migration = {
  name: "004-retention-time",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("retention_time")
      .addColumn("id", "integer", (c) => c.primaryKey())
      .addColumn("seen_ms", "bigint", required)
      .addColumn("ahead_ms", "bigint", required)
      .addColumn("jumped_at_ms", "bigint", required),
  ],
};
