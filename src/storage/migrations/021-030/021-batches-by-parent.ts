import { sql } from "kysely";
import type { Migration } from "../migration.ts";

/** Finds the retries of a batch. Most batches are none. */
export const batchesByParent: Migration = {
  name: "021-batches-by-parent",
  isAdditive: true,
  statements: ({ build: { schema } }) => [
    schema
      .createIndex("batches_by_parent")
      .on("batches")
      .columns(["parent_batch_id", "seq"])
      .where(sql.ref("parent_batch_id"), "is not", null),
  ],
};
