import type { Migration } from "../migration.ts";

/** Items that keep the ratio of their first reference. */
export const keptRatios: Migration = {
  name: "023-kept-ratios",
  isAdditive: true,
  statements: ({ build: { schema } }) => [
    schema.alterTable("items").addColumn("keeps_ratio", "integer", (c) => c.notNull().defaultTo(0)),
  ],
};
