import { sql } from "kysely";
import { BATCH_STATUSES, type BatchStatus, isTerminal } from "../../contract/statuses.ts";
import type { BatchRepository } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import { toBatchColumns, toBatchRecord, toBatchRow } from "./batch-row.ts";

export function batchRepository({ build, first, all, run }: SqlSession): BatchRepository {
  const batches = () => build.selectFrom("batches").selectAll();
  return {
    insert: (batch) => {
      run(build.insertInto("batches").values(toBatchRow(batch)));
    },
    byId: (id) => {
      const row = first(batches().where("id", "=", id));
      return row && toBatchRecord(row);
    },
    page: (filter) => {
      let query = batches()
        .where("api_key_id", "=", filter.apiKeyId)
        .where("record_deleted_at_ms", "is", null);
      const { status, taskName, isDownloaded, fromMs, beforeMs, after } = filter;
      if (status !== undefined) query = query.where("status", "=", status);
      if (taskName !== undefined) {
        // A function that both databases have, and that knows no wildcards.
        const position = sql<number>`instr(task_name_folded, ${taskName.toLowerCase()})`;
        query = query.where(position, ">", 0);
      }
      if (isDownloaded !== undefined) {
        query = query.where("downloaded_at_ms", isDownloaded ? "is not" : "is", null);
      }
      if (fromMs !== undefined) query = query.where("created_at_ms", ">=", fromMs);
      if (beforeMs !== undefined) query = query.where("created_at_ms", "<", beforeMs);
      if (after !== undefined) {
        query = query.where((eb) =>
          eb(eb.refTuple("created_at_ms", "seq"), "<", eb.tuple(after.createdAtMs, after.seq)),
        );
      }
      const ordered = query.orderBy("created_at_ms", "desc").orderBy("seq", "desc");
      const rows = all(ordered.limit(filter.limit).offset(filter.offset ?? 0));
      return rows.map((row) => ({ ...toBatchRecord(row), seq: row.seq }));
    },
    outputsDue: (nowMs, { afterSeq, limit }) => {
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
    inputsDue: (endedBeforeMs, { afterSeq, limit }) => {
      const due = build
        .selectFrom("batches")
        .select(["id", "seq"])
        .where("inputs_purged_at_ms", "is", null)
        .where("ended_at_ms", "<=", endedBeforeMs);
      return all(due.where("seq", ">", afterSeq).orderBy("seq").limit(limit));
    },
    withStatus: (statuses) =>
      all(
        batches()
          .where("status", "in", [...statuses])
          .orderBy("seq"),
      ).map(toBatchRecord),
    latest: (limit) =>
      all(batches().where("record_deleted_at_ms", "is", null).orderBy("seq", "desc").limit(limit)).map(
        toBatchRecord,
      ),
    waiting: ({ provider, apiKeyId }, limit) => {
      const queued = batches().where("status", "=", "queued").where("provider", "=", provider);
      return all(queued.where("api_key_id", "=", apiKeyId).orderBy("seq").limit(limit)).map(toBatchRecord);
    },
    waitingQueues: () => {
      const queues = build.selectFrom("batches").select(["provider", "api_key_id"]).distinct();
      const rows = all(queues.where("status", "=", "queued"));
      return rows.map(({ provider, api_key_id }) => ({ provider, apiKeyId: api_key_id }));
    },
    unmadeByOthers: (providers) => {
      const unmade = batches().where("status", "in", ["queued", "running"]);
      return all(unmade.where("provider", "not in", [...providers]).orderBy("seq")).map(toBatchRecord);
    },
    stoppedSince: (ms) =>
      all(
        batches()
          .where("status", "in", ["failed", "cancelled", "output_deleted"])
          .where("ended_at_ms", ">", ms),
      ).map(toBatchRecord),
    pendingItemCount: () => {
      const pending = sql<number | null>`sum(item_count - success_count - fail_count)`;
      const atWork = BATCH_STATUSES.filter((status) => !isTerminal(status));
      const query = build.selectFrom("batches").select(pending.as("count")).where("status", "in", atWork);
      return first(query)?.count ?? 0;
    },
    countByStatus: () => {
      const query = build
        .selectFrom("batches")
        .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
        .groupBy("status");
      return Object.fromEntries(all(query).map(({ status, count }) => [status, count]));
    },
    changeStatus: (id, from, to) => {
      const update = build.updateTable("batches").set({ status: to });
      return run(update.where("id", "=", id).where("status", "=", from)) === 1;
    },
    update: (id, change) => {
      run(build.updateTable("batches").set(toBatchColumns(change)).where("id", "=", id));
    },
    addCounts: (id, { success, fail }) => {
      const update = build.updateTable("batches").set((eb) => ({
        success_count: eb("success_count", "+", success),
        fail_count: eb("fail_count", "+", fail),
      }));
      run(update.where("id", "=", id));
    },
    appendEvent: ({ batchId, from, to, atMs }) => {
      const event = { batch_id: batchId, from_status: from, to_status: to, at_ms: atMs };
      run(build.insertInto("batch_events").values(event));
    },
    events: (id) => {
      const query = build.selectFrom("batch_events").selectAll().where("batch_id", "=", id).orderBy("seq");
      return all(query).map((row) => ({
        batchId: row.batch_id,
        from: row.from_status as BatchStatus | null,
        to: row.to_status as BatchStatus,
        atMs: row.at_ms,
      }));
    },
    lastEventMs: () => {
      const events = build.selectFrom("batch_events").select("at_ms");
      return first(events.orderBy("seq", "desc").limit(1))?.at_ms ?? null;
    },
    all: () => all(batches().orderBy("seq")).map(toBatchRecord),
  };
}
