import type { Migration } from "../migration.ts";

/** The purposes of uploaded files, in the words of OpenAI's clients. */
export const filePurposes: Migration = {
  name: "015-file-purposes",
  statements: ({ build: { schema } }) => [schema.alterTable("files").addColumn("purpose", "text")],
};
