import { sql } from "kysely";
import type { Migration } from "../migration.ts";

/** The batches of a key that were downloaded, and those that were not, in the order of the list. */
export const downloads: Migration = {
  name: "014-downloads",
  statements: ({ build: { schema } }) => [
    schema
      .createIndex("batches_by_key_and_download")
      .on("batches")
      .column("api_key_id")
      .expression(sql`(downloaded_at_ms is null)`)
      .columns(["created_at_ms", "seq"]),
  ],
};
