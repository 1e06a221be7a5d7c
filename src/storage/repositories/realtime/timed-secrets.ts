import type { Selectable } from "kysely";
import type { TimedSecretRecord, TimedSecretRepository } from "../../../domain/ports/shared-records.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";

export function timedSecretRepository({ build, all, first, run }: SqlSession): TimedSecretRepository {
  const secrets = () => build.selectFrom("timed_secrets").selectAll();
  return {
    insert: async ({ id, kind, apiKeyId, batchId, expiresAtMs }) => {
      const values = { id, kind, api_key_id: apiKeyId, batch_id: batchId, expires_at_ms: expiresAtMs };
      await run(build.insertInto("timed_secrets").values(values));
    },
    find: async (id) => {
      const row = await first(secrets().where("id", "=", id));
      return row && toRecord(row);
    },
    take: async (id) => {
      const row = await first(build.deleteFrom("timed_secrets").where("id", "=", id).returningAll());
      return row && toRecord(row);
    },
    ofKey: async (kind, apiKeyId) => {
      const query = secrets().where("kind", "=", kind).where("api_key_id", "=", apiKeyId);
      return (await all(query.orderBy("expires_at_ms").orderBy("id"))).map(toRecord);
    },
    removeExpired: async (nowMs) => {
      await run(build.deleteFrom("timed_secrets").where("expires_at_ms", "<=", nowMs));
    },
  };
}

function toRecord(row: Selectable<Database["timed_secrets"]>): TimedSecretRecord {
  return {
    id: row.id,
    kind: row.kind as TimedSecretRecord["kind"],
    apiKeyId: row.api_key_id,
    batchId: row.batch_id,
    expiresAtMs: row.expires_at_ms,
  };
}
