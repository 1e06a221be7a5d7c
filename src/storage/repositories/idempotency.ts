import type { IdempotencyRepository } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

export function idempotencyRepository({ build, first, run }: SqlSession): IdempotencyRepository {
  return {
    find: async (apiKeyId, key) => {
      const query = build.selectFrom("idempotency_keys").selectAll();
      const row = await first(query.where("api_key_id", "=", apiKeyId).where("key", "=", key));
      if (!row) return null;
      const { request_hash: requestHash, batch_id: batchId, created_at_ms: createdAtMs } = row;
      return { apiKeyId, key, requestHash, batchId, createdAtMs };
    },
    removeOfRecordsDeletedBefore: async (ms) => {
      const gone = build.selectFrom("batches").select("id").where("record_deleted_at_ms", "<", ms);
      return run(build.deleteFrom("idempotency_keys").where("batch_id", "in", gone));
    },
    insert: async ({ apiKeyId, key, requestHash, batchId, createdAtMs }) => {
      const scope = { api_key_id: apiKeyId, key };
      const claim = { request_hash: requestHash, batch_id: batchId, created_at_ms: createdAtMs };
      const insert = build.insertInto("idempotency_keys").values({ ...scope, ...claim });
      const unlessTaken = insert.onConflict((on) => on.columns(["api_key_id", "key"]).doNothing());
      return { isNew: (await run(unlessTaken)) === 1 };
    },
  };
}
