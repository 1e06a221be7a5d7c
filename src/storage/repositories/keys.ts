import type { Selectable } from "kysely";
import type { KeyRepository } from "../../domain/ports/stores.ts";
import type { ApiKeyRecord } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

const BY_SHA256 = kept((build, { sha256 }: Values<{ sha256: string }>) =>
  build.selectFrom("api_keys").selectAll().where("sha256", "=", sha256),
);

export function keyRepository({ build, first, all, run }: SqlSession): KeyRepository {
  const keys = () => build.selectFrom("api_keys").selectAll();
  return {
    insert: async (key) => {
      await run(
        build.insertInto("api_keys").values({
          id: key.id,
          sha256: key.sha256,
          name: key.name,
          prefix: key.prefix,
          account_id: key.accountId,
          group_name: key.group,
          created_at_ms: key.createdAtMs,
          expires_at_ms: key.expiresAtMs,
          disabled_at_ms: key.disabledAtMs,
        }),
      );
    },
    bySha256: async (sha256) => toRecordOrNull(await first(BY_SHA256(build, { sha256 }))),
    byId: async (id) => toRecordOrNull(await first(keys().where("id", "=", id))),
    list: async () => (await all(keys().orderBy("created_at_ms").orderBy("id"))).map(toRecord),
    setDisabled: async (id, atMs) => {
      await run(build.updateTable("api_keys").set({ disabled_at_ms: atMs }).where("id", "=", id));
    },
    setEnabled: async (id, atMs) => {
      const enabled = { disabled_at_ms: null, enabled_at_ms: atMs };
      await run(build.updateTable("api_keys").set(enabled).where("id", "=", id));
    },
  };
}

type Row = Selectable<Database["api_keys"]>;

const toRecordOrNull = (row: Row | null) => row && toRecord(row);

function toRecord(row: Row): ApiKeyRecord {
  return {
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    accountId: row.account_id,
    group: row.group_name,
    createdAtMs: row.created_at_ms,
    expiresAtMs: row.expires_at_ms,
    disabledAtMs: row.disabled_at_ms,
    enabledAtMs: row.enabled_at_ms,
  };
}
