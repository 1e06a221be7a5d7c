import { randomBytes } from "node:crypto";
import type { ColumnDefinitionBuilder } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();

/** Upstream jobs for parts of batches. No released version has written a row of the table that is replaced. */
export const jobs: Migration = {
  name: "009-jobs",
  statements: ({ build }) => {
    const { schema } = build;
    return [
      schema.dropTable("upstream_jobs"),
      schema
        .createTable("upstream_jobs")
        .addColumn("id", "text", (c) => c.primaryKey())
        .addColumn("batch_id", "text", required)
        .addColumn("step", "text", required)
        .addColumn("has_references", "integer", required)
        .addColumn("input", "text")
        .addColumn("uploaded_at_ms", "bigint")
        .addColumn("upstream_name", "text")
        .addColumn("ended_names", "text", required)
        .addColumn("creates", "integer", required)
        .addColumn("sent_at_ms", "bigint")
        .addColumn("state", "text")
        .addColumn("said", "text")
        .addColumn("error", "text")
        .addColumn("results", "integer", required)
        .addColumn("created_at_ms", "bigint", required)
        .addColumn("polled_at_ms", "bigint")
        .addColumn("ended_at_ms", "bigint")
        .addColumn("closed_at_ms", "bigint"),
      schema.createIndex("upstream_jobs_by_batch").on("upstream_jobs").column("batch_id"),
      schema.createIndex("upstream_jobs_by_step").on("upstream_jobs").column("step"),
      schema.createTable("database_identity").addColumn("id", "text", (c) => c.primaryKey()),
      build.insertInto("database_identity").values({ id: randomBytes(6).toString("hex") }),
      schema.alterTable("items").addColumn("job_id", "text"),
      schema.createIndex("items_by_job").on("items").column("job_id"),
    ];
  },
};
