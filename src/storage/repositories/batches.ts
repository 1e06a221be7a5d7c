import { sql } from "kysely";
import {
  BATCH_STATUSES,
  type BatchStatus,
  isTerminal,
  TERMINAL_BATCH_STATUSES,
} from "../../contract/statuses.ts";
import type { BatchQueue, BatchRepository, CountChange } from "../../domain/ports/batch-repository.ts";
import type { BatchEvent } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import { batchPage } from "./batch-page.ts";
import { toBatchColumns, toBatchRecord, toBatchRow } from "./batch-row.ts";
import { insertRows } from "./rows.ts";
import { liveWorkers } from "./workers.ts";

/** The statuses of batches that are at work. */
const BEGUN: readonly BatchStatus[] = ["running", "processing_results", "settling"];

const BY_ID = kept((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").selectAll().where("id", "=", id),
);

const CHANGE_STATUS = kept(
  (build, { id, from, to }: Values<{ id: string; from: BatchStatus; to: BatchStatus }>) =>
    build.updateTable("batches").set({ status: to }).where("id", "=", id).where("status", "=", from),
);

const ADD_COUNTS = kept((build, { id, success, fail }: Values<CountChange>) =>
  build
    .updateTable("batches")
    .set((eb) => ({
      success_count: eb("success_count", "+", success),
      fail_count: eb("fail_count", "+", fail),
      waiting_since_ms: sql<number | null>`case when ${success} > 0 then null else waiting_since_ms end`,
    }))
    .where("id", "=", id),
);

type CountLists = Record<keyof CountChange, unknown[]>;

/** The same for any number of batches. */
const ADD_ALL_COUNTS = kept((build, { id, success, fail }: Values<CountLists>) => {
  const added = sql<CountChange>`unnest(${id}::text[], ${success}::bigint[], ${fail}::bigint[])`;
  return build
    .updateTable("batches")
    .from(added.as<"added">(sql`added(id, success, fail)`))
    .set((eb) => ({
      success_count: eb("success_count", "+", eb.ref("added.success")),
      fail_count: eb("fail_count", "+", eb.ref("added.fail")),
      waiting_since_ms: sql<number | null>`case when added.success > 0 then null else waiting_since_ms end`,
    }))
    .whereRef("batches.id", "=", "added.id");
});

const APPEND_EVENT = kept((build, event: Values<BatchEvent>) =>
  build
    .insertInto("batch_events")
    .values({ batch_id: event.batchId, from_status: event.from, to_status: event.to, at_ms: event.atMs }),
);

/** The owner of a batch; null when it is not alive. */
const liveOwner = (build: SqlSession["build"]) =>
  build.selectFrom("workers").select("workers.id").whereRef("workers.id", "=", sql.ref("batches.owner"));

const WAITING = kept((build, queue: Values<BatchQueue & { limit: number }>) =>
  build
    .selectFrom("batches")
    .select(["id", liveOwner(build).as("owner")])
    .where("status", "=", "queued")
    .where("provider", "=", queue.provider)
    .where("api_key_id", "=", queue.apiKeyId)
    .orderBy("seq")
    .limit(queue.limit),
);

const COUNT_BEGUN = kept((build, { provider, apiKeyId }: Values<BatchQueue>) =>
  build
    .selectFrom("batches")
    .select((eb) => eb.fn.countAll<number>().as("count"))
    .where("status", "in", [...BEGUN])
    .where("provider", "=", provider)
    .where("api_key_id", "=", apiKeyId),
);

const OWNER_OF = kept((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("batches").select("owner").where("id", "=", id),
);

const BECOME_OWNER = kept((build, { id, workerId }: Values<{ id: string; workerId: string }>) =>
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
  const batches = () => build.selectFrom("batches").selectAll();
  return {
    insert: async (batch) => {
      await insertRows(session, "batches", [toBatchRow(batch)]);
    },
    byId: async (id) => {
      const row = await first(BY_ID(build, { id }));
      return row && toBatchRecord(row);
    },
    placeOf: async (id) => {
      const row = await first(
        build.selectFrom("batches").select(["created_at_ms", "seq"]).where("id", "=", id),
      );
      return row && { createdAtMs: row.created_at_ms, seq: row.seq };
    },
    page: async (filter) => {
      const rows = await batchPage(session, filter);
      return rows.map((row) => ({ ...toBatchRecord(row), seq: row.seq }));
    },
    outputsDue: async (nowMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where((eb) =>
          eb.or([
            eb.and([
              eb("status", "in", ["completed", "failed", "cancelled"]),
              eb("outputs_expire_at_ms", "<=", nowMs),
            ]),
            eb.and([eb("status", "=", "output_deleted"), eb("outputs_purged_at_ms", "is", null)]),
          ]),
        );
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    inputsDue: async (endedBeforeMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where("inputs_purged_at_ms", "is", null)
        .where("ended_at_ms", "<=", endedBeforeMs);
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    countUnended: async (apiKeyId, source) => {
      const query = build
        .selectFrom("batches")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .where("api_key_id", "=", apiKeyId)
        .where("status", "not in", [...TERMINAL_BATCH_STATUSES])
        .where("source", "=", source);
      return (await first(query))?.count ?? 0;
    },
    ofOpenaiRequest: async ({ apiKeyId, requestHash, fromMs }) => {
      // A function that knows no wildcards.
      const positionOf = sql.raw(session.dialect === "sqlite" ? "instr" : "strpos");
      const equal = batches()
        .where("api_key_id", "=", apiKeyId)
        .where("created_at_ms", ">=", fromMs)
        .where("source", "=", "openai")
        .where("record_deleted_at_ms", "is", null)
        .where(sql<number>`${positionOf}(input, ${JSON.stringify(requestHash)})`, ">", 0)
        .orderBy("created_at_ms", "desc")
        .orderBy("seq", "desc");
      const row = await first(equal.limit(1));
      return row && toBatchRecord(row);
    },
    withStatus: async (statuses) =>
      (
        await all(
          batches()
            .where("status", "in", [...statuses])
            .orderBy("seq"),
        )
      ).map(toBatchRecord),
    latest: async (limit) =>
      (
        await all(batches().where("record_deleted_at_ms", "is", null).orderBy("seq", "desc").limit(limit))
      ).map(toBatchRecord),
    waiting: (queue, limit) => all(WAITING(build, { ...queue, limit })),
    countBegun: async (queue) => (await first(COUNT_BEGUN(build, queue)))?.count ?? 0,
    begun: async () => {
      const begun = build
        .selectFrom("batches")
        .select(["id", "status", "provider", "api_key_id", liveOwner(build).as("owner")])
        .where("status", "in", [...BEGUN])
        .orderBy("seq");
      return (await all(begun)).map(({ id, status, provider, api_key_id, owner }) => {
        return { id, status: status as BatchStatus, provider, apiKeyId: api_key_id, owner };
      });
    },
    endWaits: async () => {
      const waiting = build.updateTable("batches").where("waiting_since_ms", "is not", null);
      await run(waiting.set({ waiting_since_ms: null }).where("status", "in", [...BEGUN]));
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
        .where("api_key_id", "=", apiKeyId)
        .where("status", "in", ["queued", "running"])
        .where("provider", "=", provider)
        .where("seq", "<", own)
        .limit(limit);
      return (await all(before)).length;
    },
    waitingQueues: async () => {
      const queues = build.selectFrom("batches").select(["provider", "api_key_id"]).distinct();
      const rows = await all(queues.where("status", "=", "queued"));
      return rows.map(({ provider, api_key_id }) => ({ provider, apiKeyId: api_key_id }));
    },
    unmadeByOthers: async (providers) => {
      const unmade = batches().where("status", "in", ["queued", "running"]);
      return (await all(unmade.where("provider", "not in", [...providers]).orderBy("seq"))).map(
        toBatchRecord,
      );
    },
    endedSince: async (ms, statuses) => {
      const ended = build
        .selectFrom("batches")
        .select("id")
        .where("status", "in", [...statuses]);
      return all(ended.where("ended_at_ms", ">", ms).orderBy("seq"));
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
      await run(build.updateTable("batches").set(toBatchColumns(change)).where("id", "=", id));
    },
    addCounts: async (...changes) => {
      if (dialect === "sqlite") for (const change of changes) await run(ADD_COUNTS(build, change));
      else {
        const of = (name: keyof CountChange) => changes.map((change) => change[name]);
        await run(ADD_ALL_COUNTS(build, { id: of("id"), success: of("success"), fail: of("fail") }));
      }
    },
    appendEvent: async (event) => {
      await run(APPEND_EVENT(build, event));
    },
    events: async (...ids) => {
      const query = build.selectFrom("batch_events").selectAll().where("batch_id", "in", ids).orderBy("seq");
      return (await all(query)).map((row) => ({
        batchId: row.batch_id,
        from: row.from_status as BatchStatus | null,
        to: row.to_status as BatchStatus,
        atMs: row.at_ms,
      }));
    },
    lastEventMs: async () => {
      const events = build.selectFrom("batch_events").select("at_ms");
      return (await first(events.orderBy("seq", "desc").limit(1)))?.at_ms ?? null;
    },
    all: async () => (await all(batches().orderBy("seq"))).map(toBatchRecord),
  };
}
