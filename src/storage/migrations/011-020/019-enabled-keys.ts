import type { Migration } from "../migration.ts";

/** When a key that was disabled was enabled again: sessions from before that have ended. */
export const enabledKeys: Migration = {
  name: "019-enabled-keys",
  isAdditive: true,
  statements: ({ build: { schema } }) => [schema.alterTable("api_keys").addColumn("enabled_at_ms", "bigint")],
};
