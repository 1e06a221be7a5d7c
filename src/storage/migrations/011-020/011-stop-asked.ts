import type { Migration } from "../migration.ts";

/** Since when the upstream is asked to stop a job. */
export const stopAsked: Migration = {
  name: "011-stop-asked",
  statements: ({ build: { schema } }) => [
    schema.alterTable("upstream_jobs").addColumn("stop_asked_at_ms", "bigint"),
  ],
};
