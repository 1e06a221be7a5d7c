import type { Selectable } from "kysely";
import type { KeyedAnswerRecord, KeyedRequestRecord } from "../../../domain/ports/realtime-records.ts";
import type { KeyedRequestRepository } from "../../../domain/ports/stores.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";

export function keyedRequestRepository({ build, all, first, run }: SqlSession): KeyedRequestRepository {
  const requests = () => build.selectFrom("keyed_requests").selectAll();
  return {
    find: async (apiKeyId, key) => {
      const row = await first(requests().where("api_key_id", "=", apiKeyId).where("key", "=", key));
      return row && toRecord(row);
    },
    put: async ({ apiKeyId, key, fingerprint, realtimeId, paidRuns, answer, expiresAtMs }) => {
      const row = {
        fingerprint,
        realtime_id: realtimeId,
        paid_runs: paidRuns,
        sha256: answer !== null && "sha256" in answer ? answer.sha256 : null,
        error: answer !== null && "error" in answer ? JSON.stringify(answer.error) : null,
        expires_at_ms: expiresAtMs,
      };
      const insert = build.insertInto("keyed_requests").values({ api_key_id: apiKeyId, key, ...row });
      await run(insert.onConflict((on) => on.columns(["api_key_id", "key"]).doUpdateSet(row)));
    },
    remove: async ({ apiKeyId, key, realtimeId }) => {
      const removal = build.deleteFrom("keyed_requests").where("realtime_id", "=", realtimeId);
      await run(removal.where("api_key_id", "=", apiKeyId).where("key", "=", key));
    },
    due: async (nowMs, limit) => {
      const query = requests().where("expires_at_ms", "<=", nowMs);
      return (await all(query.orderBy("expires_at_ms").limit(limit))).map(toRecord);
    },
    answered: async () =>
      (await all(requests().where("sha256", "is not", null).orderBy("realtime_id"))).map(toRecord),
  };
}

function toRecord(row: Selectable<Database["keyed_requests"]>): KeyedRequestRecord {
  return {
    apiKeyId: row.api_key_id,
    key: row.key,
    fingerprint: row.fingerprint,
    realtimeId: row.realtime_id,
    paidRuns: row.paid_runs,
    answer: answerOf(row),
    expiresAtMs: row.expires_at_ms,
  };
}

function answerOf({ sha256, error }: Selectable<Database["keyed_requests"]>): KeyedAnswerRecord | null {
  if (sha256 !== null) return { sha256 };
  return error === null ? null : { error: JSON.parse(error) };
}
