import { sql } from "kysely";
import {
  BATCH_STATUSES,
  type BatchStatus,
  isTerminal,
  TERMINAL_BATCH_STATUSES,
} from "../../contract/statuses.ts";
import type { BatchQueue, BatchRepository, CountChange } from "../../domain/ports/batches.ts";
import type { BatchEvent } from "../../domain/records.ts";
import { arrayOf } from "../dialects/postgres-session.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { BATCH } from "../tables.ts";
import { batchPage } from "./batch-page.ts";
import { columnsOf, insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

/** The statuses of batches that are at work. */
const BEGUN: readonly BatchStatus[] = ["running", "processing_results", "settling"];

const BY_ID = prepared((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").select(BATCH).where("id", "=", id),
);

const CHANGE_STATUS = prepared(
  (build, { id, from, to }: Values<{ id: string; from: BatchStatus; to: BatchStatus }>) =>
    build.updateTable("batches").set({ status: to }).where("id", "=", id).where("status", "=", from),
);

const ADD_COUNTS = prepared((build, { id, success, fail }: Values<CountChange>) =>
  build
    .updateTable("batches")
    .set((eb) => ({
      successCount: eb("successCount", "+", success),
      failCount: eb("failCount", "+", fail),
      waitingSinceMs: sql<number | null>`case when ${success} > 0 then null else waiting_since_ms end`,
    }))
    .where("id", "=", id),
);

type CountLists = Record<keyof CountChange, unknown[]>;

/** The same for any number of batches. */
const ADD_ALL_COUNTS = prepared((build, { id, success, fail }: Values<CountLists>) => {
  const added = sql<CountChange>`unnest(${id}::text[], ${success}::bigint[], ${fail}::bigint[])`;
  return build
    .updateTable("batches")
    .from(added.as<"added">(sql`added(id, success, fail)`))
    .set((eb) => ({
      successCount: eb("successCount", "+", eb.ref("added.success")),
      failCount: eb("failCount", "+", eb.ref("added.fail")),
      waitingSinceMs: sql<number | null>`case when added.success > 0 then null else waiting_since_ms end`,
    }))
    .whereRef("batches.id", "=", "added.id");
});

const APPEND_EVENT = prepared((build, event: Values<BatchEvent>) =>
  build
    .insertInto("batch_events")
    .values({ batchId: event.batchId, from: event.from, to: event.to, atMs: event.atMs }),
);

/** The owner of a batch; null when it is not alive. */
const liveOwner = (build: SqlSession["build"]) =>
  build.selectFrom("workers").select("workers.id").whereRef("workers.id", "=", sql.ref("batches.owner"));

const WAITING = prepared((build, queue: Values<BatchQueue & { limit: number }>) =>
  build
    .selectFrom("batches")
    .select(["id", liveOwner(build).as("owner")])
    .where("status", "=", "queued")
    .where("provider", "=", queue.provider)
    .where("apiKeyId", "=", queue.apiKeyId)
    .orderBy("seq")
    .limit(queue.limit),
);

const COUNT_BEGUN = prepared((build, { provider, apiKeyId }: Values<BatchQueue>) =>
  build
    .selectFrom("batches")
    .select((eb) => eb.fn.countAll<number>().as("count"))
    .where("status", "in", [...BEGUN])
    .where("provider", "=", provider)
    .where("apiKeyId", "=", apiKeyId),
);

const OWNER_OF = prepared((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").select("owner").where("id", "=", id),
);

const BECOME_OWNER = prepared((build, { id, workerId }: Values<{ id: string; workerId: string }>) =>
  build
    .updateTable("batches")
    .set({ owner: workerId })
    .where("id", "=", id)
    .where((eb) =>
      eb.or([eb("owner", "is", null), eb("owner", "=", workerId), eb("owner", "not in", liveWorkers(build))]),
    ),
);

export function batchRepository(session: SqlSession): BatchRepository {
  const { build, dialect, first, all, run } = session;
  const batches = () => build.selectFrom("batches").select(BATCH);
  return {
    insert: async (batch) => {
      await insertRows(session, "batches", [{ ...batch, taskNameFolded: batch.taskName.toLowerCase() }]);
    },
    byId: (id) => first(BY_ID(build, { id })),
    placeOf: (id) => first(build.selectFrom("batches").select(["createdAtMs", "seq"]).where("id", "=", id)),
    page: (filter) => batchPage(session, filter),
    outputsDue: async (nowMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where((eb) =>
          eb.or([
            eb.and([
              eb("status", "in", ["completed", "failed", "cancelled"]),
              eb("outputsExpireAtMs", "<=", nowMs),
            ]),
            eb.and([eb("status", "=", "output_deleted"), eb("outputsPurgedAtMs", "is", null)]),
          ]),
        );
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    inputsDue: async (endedBeforeMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where("inputsPurgedAtMs", "is", null)
        .where("endedAtMs", "<=", endedBeforeMs);
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    countUnended: async (apiKeyId, source) => {
      const query = build
        .selectFrom("batches")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("apiKeyId", "=", apiKeyId)
        .where("status", "not in", [...TERMINAL_BATCH_STATUSES])
        .where("source", "=", source);
      return (await first(query))?.count ?? 0;
    },
    withStatus: (statuses) =>
      all(
        batches()
          .where("status", "in", [...statuses])
          .orderBy("seq"),
      ),
    latest: (limit) =>
      all(batches().where("recordDeletedAtMs", "is", null).orderBy("seq", "desc").limit(limit)),
    waiting: (queue, limit) => all(WAITING(build, { ...queue, limit })),
    countBegun: async (queue) => (await first(COUNT_BEGUN(build, queue)))?.count ?? 0,
    begun: async () => {
      const begun = build
        .selectFrom("batches")
        .select(["id", "status", "provider", "apiKeyId", liveOwner(build).as("owner")])
        .where("status", "in", [...BEGUN])
        .orderBy("seq");
      return all(begun);
    },
    endWaits: async () => {
      const waiting = build.updateTable("batches").where("waitingSinceMs", "is not", null);
      await run(waiting.set({ waitingSinceMs: null }).where("status", "in", [...BEGUN]));
    },
    becomeOwner: async (id, workerId) => ({
      isOurs: (await run(BECOME_OWNER(build, { id, workerId }))) === 1,
    }),
    setOwner: async (id, workerId) => {
      await run(build.updateTable("batches").set({ owner: workerId }).where("id", "=", id));
    },
    ownerOf: async (id) => (await first(OWNER_OF(build, { id })))?.owner ?? null,
    openBefore: async ({ id, provider, apiKeyId }, limit) => {
      const own = build.selectFrom("batches").select("seq").where("id", "=", id);
      const before = build
        .selectFrom("batches")
        .select("seq")
        .where("apiKeyId", "=", apiKeyId)
        .where("status", "in", ["queued", "running"])
        .where("provider", "=", provider)
        .where("seq", "<", own)
        .limit(limit);
      return (await all(before)).length;
    },
    waitingQueues: async () => {
      const queues = build.selectFrom("batches").select(["provider", "apiKeyId"]).distinct();
      return all(queues.where("status", "=", "queued"));
    },
    unmadeByOthers: async (providers) => {
      const unmade = batches().where("status", "in", ["queued", "running"]);
      return all(unmade.where("provider", "not in", [...providers]).orderBy("seq"));
    },
    endedSince: async (ms, statuses) => {
      const ended = build
        .selectFrom("batches")
        .select("id")
        .where("status", "in", [...statuses]);
      return all(ended.where("endedAtMs", ">", ms).orderBy("seq"));
    },
    pendingItemCount: async () => {
      const pending = sql<number | null>`sum(item_count - success_count - fail_count)`;
      const atWork = BATCH_STATUSES.filter((status) => !isTerminal(status));
      const query = build.selectFrom("batches").select(pending.as("count")).where("status", "in", atWork);
      return (await first(query))?.count ?? 0;
    },
    countByStatus: async () => {
      const counts = build
        .selectFrom("batches")
        .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
        .groupBy("status");
      return Object.fromEntries((await all(counts)).map(({ status, count }) => [status, count]));
    },
    changeStatus: async (id, from, to) => {
      return { isChanged: (await run(CHANGE_STATUS(build, { id, from, to }))) === 1 };
    },
    update: async (id, change) => {
      await run(build.updateTable("batches").set(columnsOf("batches", change)).where("id", "=", id));
    },
    addCounts: async (...changes) => {
      if (dialect === "sqlite") for (const change of changes) await run(ADD_COUNTS(build, change));
      else {
        const of = (name: keyof CountChange) => arrayOf(changes.map((change) => change[name]));
        await run(ADD_ALL_COUNTS(build, { id: of("id"), success: of("success"), fail: of("fail") }));
      }
    },
    appendEvent: async (event) => {
      await run(APPEND_EVENT(build, event));
    },
    events: (...ids) =>
      all(
        build
          .selectFrom("batch_events")
          .select(["batchId", "from", "to", "atMs"])
          .where("batchId", "in", ids)
          .orderBy("seq"),
      ),
    all: () => all(batches().orderBy("seq")),
  };
}
