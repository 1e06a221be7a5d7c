import type { Selectable } from "kysely";
import { TERMINAL_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { UpstreamJobRepository } from "../../domain/ports/stores.ts";
import type { UpstreamJobRecord } from "../../domain/records.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

export function upstreamJobRepository({ build, first, all, run }: SqlSession): UpstreamJobRepository {
  return {
    ofBatch: (batchId) => {
      const row = first(build.selectFrom("upstream_jobs").selectAll().where("batch_id", "=", batchId));
      return row && toRecord(row);
    },
    openOfEnded: () => {
      const open = build
        .selectFrom("upstream_jobs")
        .innerJoin("batches", "batches.id", "upstream_jobs.batch_id")
        .selectAll("upstream_jobs")
        .where("upstream_jobs.closed_at_ms", "is", null)
        .where("batches.status", "in", [...TERMINAL_BATCH_STATUSES]);
      return all(open.orderBy("upstream_jobs.created_at_ms")).map(toRecord);
    },
    insert: ({ batchId, jobId, upstreamName, createdAtMs }) => {
      const names = { job_id: jobId, upstream_name: upstreamName };
      run(
        build.insertInto("upstream_jobs").values({ batch_id: batchId, ...names, created_at_ms: createdAtMs }),
      );
    },
    setUpstreamName: (batchId, name) => {
      run(build.updateTable("upstream_jobs").set({ upstream_name: name }).where("batch_id", "=", batchId));
    },
    close: (batchId, atMs) => {
      run(build.updateTable("upstream_jobs").set({ closed_at_ms: atMs }).where("batch_id", "=", batchId));
    },
    remove: (batchId) => {
      run(build.deleteFrom("upstream_jobs").where("batch_id", "=", batchId));
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
