import type { Migration } from "../migration.ts";

/** Which version of the model an item was made with. */
export const modelVersion: Migration = {
  name: "005-model-version",
  statements: ({ build: { schema } }) => [schema.alterTable("items").addColumn("model_version", "text")],
};
