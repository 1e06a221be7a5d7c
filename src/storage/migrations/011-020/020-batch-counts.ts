import { sql } from "kysely";
import { BATCH_STATUSES } from "../../../contract/statuses.ts";
import type { Migration } from "../migration.ts";

/** How many batches have each status: as of some line of the history, and the lines that are not in these counts yet. */
export const batchCounts: Migration = {
  name: "020-batch-counts",
  statements: ({ build }) => [
    build.schema
      .createTable("batch_counts")
      .addColumn("status", "text", (c) => c.primaryKey())
      .addColumn("count", "bigint", (c) => c.notNull()),
    ...BATCH_STATUSES.map((status) =>
      build.insertInto("batch_counts").values((eb) => ({
        status,
        count: eb
          .selectFrom("batches")
          .select((e) => e.fn.countAll<number>().as("count"))
          .where("status", "=", status),
      })),
    ),
    build.schema.alterTable("batch_events").addColumn("uncounted", "integer"),
    build.schema
      .createIndex("events_uncounted")
      .on("batch_events")
      .columns(["to_status", "from_status"])
      .where(sql.ref("uncounted"), "is not", null),
  ],
};
