import type { Migration } from "./migration.ts";

/** What files were uploaded for, as OpenAI's clients say it. */
export const filePurposes: Migration = {
  name: "015-file-purposes",
  statements: ({ build: { schema } }) => [schema.alterTable("files").addColumn("purpose", "text")],
};
