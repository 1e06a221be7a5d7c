import { sql } from "kysely";
import { TERMINAL_BATCH_STATUSES } from "../../../contract/statuses.ts";
import type { Migration } from "../migration.ts";

/** Which upstream jobs may still run, and a way to find the batches of a key that wait for a provider. */
export const waitingAndOpenJobs: Migration = {
  name: "002-waiting-and-open-jobs",
  statements: ({ build }) => [
    build.schema.alterTable("upstream_jobs").addColumn("closed_at_ms", "bigint"),
    build
      .updateTable("upstream_jobs")
      .set({ closed_at_ms: sql<number>`created_at_ms` })
      .where("batch_id", "in", (eb) =>
        eb
          .selectFrom("batches")
          .select("id")
          .where("status", "in", [...TERMINAL_BATCH_STATUSES]),
      ),
    build.schema.createIndex("upstream_jobs_by_end").on("upstream_jobs").column("closed_at_ms"),
    build.schema
      .createIndex("batches_waiting")
      .on("batches")
      .columns(["status", "provider", "api_key_id", "seq"]),
  ],
};
