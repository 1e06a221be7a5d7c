import type { IdempotencyRepository } from "../../domain/ports/stores.ts";
import type { IdempotencyRecord } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

const FIND = kept((build, { apiKeyId, key }: Values<{ apiKeyId: string; key: string }>) =>
  build.selectFrom("idempotency_keys").selectAll().where("api_key_id", "=", apiKeyId).where("key", "=", key),
);

const INSERT = kept(
  (build, { apiKeyId, key, requestHash, batchId, createdAtMs }: Values<IdempotencyRecord>) =>
    build
      .insertInto("idempotency_keys")
      .values({
        api_key_id: apiKeyId,
        key,
        request_hash: requestHash,
        batch_id: batchId,
        created_at_ms: createdAtMs,
      })
      .onConflict((on) => on.columns(["api_key_id", "key"]).doNothing()),
);

export function idempotencyRepository({ build, first, run }: SqlSession): IdempotencyRepository {
  return {
    find: async (apiKeyId, key) => {
      const row = await first(FIND(build, { apiKeyId, key }));
      if (!row) return null;
      const { request_hash: requestHash, batch_id: batchId, created_at_ms: createdAtMs } = row;
      return { apiKeyId, key, requestHash, batchId, createdAtMs };
    },
    removeOfRecordsDeletedBefore: async (ms) => {
      const gone = build.selectFrom("batches").select("id").where("record_deleted_at_ms", "<", ms);
      return run(build.deleteFrom("idempotency_keys").where("batch_id", "in", gone));
    },
    insert: async (claim) => ({ isNew: (await run(INSERT(build, claim))) === 1 }),
  };
}
