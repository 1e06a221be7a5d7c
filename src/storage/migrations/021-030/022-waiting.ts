import type { Migration } from "../migration.ts";

/** Why a batch waits, in the words of the process that has found it. */
export const waiting: Migration = {
  name: "022-waiting",
  isAdditive: true,
  statements: ({ build: { schema } }) => [schema.alterTable("batches").addColumn("waiting", "text")],
};
