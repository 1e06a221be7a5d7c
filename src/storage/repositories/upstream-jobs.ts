import type { Selectable } from "kysely";
import { TERMINAL_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { UpstreamJobRepository } from "../../domain/ports/stores.ts";
import type { UpstreamJobRecord } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

export function upstreamJobRepository({ build, first, all, run }: SqlSession): UpstreamJobRepository {
  return {
    ofBatch: async (batchId) => {
      const row = await first(build.selectFrom("upstream_jobs").selectAll().where("batch_id", "=", batchId));
      return row && toRecord(row);
    },
    openOfEnded: async () => {
      const open = build
        .selectFrom("upstream_jobs")
        .innerJoin("batches", "batches.id", "upstream_jobs.batch_id")
        .selectAll("upstream_jobs")
        .where("upstream_jobs.closed_at_ms", "is", null)
        .where("batches.status", "in", [...TERMINAL_BATCH_STATUSES]);
      return (await all(open.orderBy("upstream_jobs.created_at_ms"))).map(toRecord);
    },
    insert: async ({ batchId, jobId, upstreamName, createdAtMs }) => {
      const names = { job_id: jobId, upstream_name: upstreamName };
      await run(
        build.insertInto("upstream_jobs").values({ batch_id: batchId, ...names, created_at_ms: createdAtMs }),
      );
    },
    setUpstreamName: async (batchId, name) => {
      await run(
        build.updateTable("upstream_jobs").set({ upstream_name: name }).where("batch_id", "=", batchId),
      );
    },
    close: async (batchId, atMs) => {
      await run(
        build.updateTable("upstream_jobs").set({ closed_at_ms: atMs }).where("batch_id", "=", batchId),
      );
    },
    remove: async (batchId) => {
      await run(build.deleteFrom("upstream_jobs").where("batch_id", "=", batchId));
    },
  };
}

function toRecord(row: Selectable<Database["upstream_jobs"]>): UpstreamJobRecord {
  return {
    batchId: row.batch_id,
    jobId: row.job_id,
    upstreamName: row.upstream_name,
    createdAtMs: row.created_at_ms,
    closedAtMs: row.closed_at_ms,
  };
}
