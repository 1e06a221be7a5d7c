import type { Migration } from "../migration.ts";

/** Which steps leave the database usable for a program that does not know them. */
export const additiveSteps: Migration = {
  name: "017-additive-steps",
  statements: ({ build: { schema } }) => [
    schema
      .alterTable("schema_migrations")
      .addColumn("is_additive", "integer", (c) => c.notNull().defaultTo(0)),
  ],
};
