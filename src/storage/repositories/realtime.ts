import { sql } from "kysely";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import { columnsOf, insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

function realtimeHoldRepository(session: SqlSession): Repositories["realtimeHolds"] {
  const { build, all, first } = session;
  const holds = () => build.selectFrom("realtime_holds").selectAll();
  return {
    insert: (hold) => insertRows(session, "realtime_holds", [hold]),
    remove: (id) => first(build.deleteFrom("realtime_holds").where("id", "=", id).returningAll()),
    abandoned: () => all(holds().where("worker", "not in", liveWorkers(build)).orderBy("id")),
    countOpen: async (apiKeyId) => {
      const open = build
        .selectFrom("realtime_holds")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("apiKeyId", "=", apiKeyId)
        .where("worker", "in", liveWorkers(build));
      return (await first(open))?.count ?? 0;
    },
    isOpen: async (id) => {
      const open = holds().where("id", "=", id).where("worker", "in", liveWorkers(build));
      return { isOpen: (await first(open)) !== null };
    },
    list: () => all(holds().orderBy("createdAtMs").orderBy("id")),
  };
}

function keyedRequestRepository({ build, all, first, run }: SqlSession): Repositories["keyedRequests"] {
  const requests = () => build.selectFrom("keyed_requests").selectAll();
  return {
    find: (apiKeyId, key) => first(requests().where("apiKeyId", "=", apiKeyId).where("key", "=", key)),
    put: async (request) => {
      const { apiKeyId, key, ...rest } = columnsOf("keyed_requests", request);
      const insert = build.insertInto("keyed_requests").values({ apiKeyId, key, ...rest });
      await run(insert.onConflict((on) => on.columns(["apiKeyId", "key"]).doUpdateSet(rest)));
    },
    remove: async ({ apiKeyId, key, realtimeId }) => {
      const removal = build.deleteFrom("keyed_requests").where("realtimeId", "=", realtimeId);
      await run(removal.where("apiKeyId", "=", apiKeyId).where("key", "=", key));
    },
    due: (nowMs, limit) =>
      all(requests().where("expiresAtMs", "<=", nowMs).orderBy("expiresAtMs").limit(limit)),
    ofRun: (realtimeId) => first(requests().where("realtimeId", "=", realtimeId)),
    answered: async () => {
      const answered = await all(requests().where("answer", "is not", null).orderBy("realtimeId"));
      return answered.filter(({ answer }) => answer !== null && "sha256" in answer);
    },
  };
}

function linkedImageRepository(session: SqlSession): Repositories["linkedImages"] {
  const { build, all, first, run } = session;
  const images = () => build.selectFrom("linked_images").selectAll();
  return {
    insert: (image) => insertRows(session, "linked_images", [image]),
    find: (id) => first(images().where("id", "=", id)),
    due: (nowMs, { afterSeq, limit }) =>
      all(images().where("expiresAtMs", "<=", nowMs).where("seq", ">", afterSeq).orderBy("seq").limit(limit)),
    remove: (id) => run(build.deleteFrom("linked_images").where("id", "=", id)),
  };
}

function interactionRepository(session: SqlSession): Repositories["interactions"] {
  const { build, all, first, run, changes } = session;
  const interactions = () => build.selectFrom("interactions").selectAll();
  return {
    insert: (interaction) => insertRows(session, "interactions", [interaction]),
    find: (id) => first(interactions().where("id", "=", id)),
    end: async (id, change) => {
      const ended = build
        .updateTable("interactions")
        .set({ ...change, worker: null })
        .where("id", "=", id);
      return { isChanged: (await changes(ended.where("status", "=", "in_progress"))) === 1 };
    },
    due: (nowMs, { afterSeq, limit }) =>
      all(
        interactions()
          .where("expiresAtMs", "<=", nowMs)
          .where("seq", ">", afterSeq)
          .orderBy("seq")
          .limit(limit),
      ),
    remove: (id) => run(build.deleteFrom("interactions").where("id", "=", id)),
  };
}

function usageRepository(session: SqlSession): Repositories["usage"] {
  const { build, all, first } = session;
  return {
    insertMany: (records) => insertRows(session, "usage_records", records),
    list: () => all(build.selectFrom("usage_records").selectAll().orderBy("seq")),
    byDay: async ({ apiKeyId, accountIds, fromMs, beforeMs }) => {
      const ofBatches = build
        .selectFrom("batches")
        .select(["accountId", "model", "successCount as images", "actualMicroUsd as amount"])
        .select(sql<number>`settled_at_ms / 86400000 * 86400000`.as("dayMs"))
        .where("apiKeyId", "=", apiKeyId)
        .where("settledAtMs", ">=", fromMs)
        .where("settledAtMs", "<", beforeMs);
      const ofRealtime = build
        .selectFrom("usage_records")
        .select(["accountId", "model", sql<number>`1`.as("images"), "amountMicroUsd as amount"])
        .select(sql<number>`created_at_ms / 86400000 * 86400000`.as("dayMs"))
        .where("accountId", "in", accountIds)
        .where("apiKeyId", "=", apiKeyId)
        .where("createdAtMs", ">=", fromMs)
        .where("createdAtMs", "<", beforeMs);
      const query = build
        .selectFrom(ofBatches.unionAll(ofRealtime).as("paid"))
        .select(["dayMs as dayMs", "model", "accountId as accountId"])
        .select((eb) => eb.fn.sum<number>("images").as("imageCount"))
        .select((eb) => eb.fn.sum<number>("amount").as("amountMicroUsd"))
        .groupBy(["dayMs", "model", "accountId"])
        .orderBy("dayMs")
        .orderBy("model")
        .orderBy("accountId");
      return all(query);
    },
    count: async () =>
      (await first(build.selectFrom("usage_records").select(({ fn }) => fn.countAll<number>().as("n"))))?.n ??
      0,
  };
}

function requestCountRepository({ build, first, run }: SqlSession): Repositories["requestCounts"] {
  return {
    add: async (apiKeyId, second, oldestSecond) => {
      const old = build.deleteFrom("request_counts").where("apiKeyId", "=", apiKeyId);
      await run(old.where("second", "<", oldestSecond));
      const row = { apiKeyId, second, count: 1 };
      const insert = build.insertInto("request_counts").values(row);
      await run(
        insert.onConflict((on) =>
          on
            .columns(["apiKeyId", "second"])
            .doUpdateSet((eb) => ({ count: eb("request_counts.count", "+", 1) })),
        ),
      );
    },
    since: async (apiKeyId, second) => {
      const query = build
        .selectFrom("request_counts")
        .select(({ fn }) => [fn.sum<number | null>("count").as("count"), fn.min("second").as("firstSecond")])
        .where("apiKeyId", "=", apiKeyId)
        .where("second", ">=", second);
      const row = await first(query);
      return { count: row?.count ?? 0, firstSecond: row?.firstSecond ?? null };
    },
  };
}

function timedSecretRepository(session: SqlSession): Repositories["timedSecrets"] {
  const { build, all, first, run } = session;
  const secrets = () => build.selectFrom("timed_secrets").selectAll();
  return {
    insert: (secret) => insertRows(session, "timed_secrets", [secret]),
    find: (id) => first(secrets().where("id", "=", id)),
    take: (id) => first(build.deleteFrom("timed_secrets").where("id", "=", id).returningAll()),
    ofKey: (kind, apiKeyId) => {
      const query = secrets().where("kind", "=", kind).where("apiKeyId", "=", apiKeyId);
      return all(query.orderBy("expiresAtMs").orderBy("id"));
    },
    removeExpired: (nowMs) => run(build.deleteFrom("timed_secrets").where("expiresAtMs", "<=", nowMs)),
  };
}

export const realtimeRepositories = (session: SqlSession) => ({
  realtimeHolds: realtimeHoldRepository(session),
  keyedRequests: keyedRequestRepository(session),
  linkedImages: linkedImageRepository(session),
  interactions: interactionRepository(session),
  usage: usageRepository(session),
  requestCounts: requestCountRepository(session),
  timedSecrets: timedSecretRepository(session),
});
