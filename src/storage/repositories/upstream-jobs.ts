import type { Insertable, Selectable, Updateable } from "kysely";
import { MAKING_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { JobState } from "../../domain/ports/image-provider.ts";
import type { JobStep, UpstreamJobRecord, UpstreamJobRepository } from "../../domain/ports/upstream-jobs.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { UpstreamJobsTable } from "../schema.ts";

/** Steps after which the upstream has nothing left to make. */
const AFTER_WORK: readonly JobStep[] = ["done", "closed"];

export function upstreamJobRepository(session: SqlSession): UpstreamJobRepository {
  const { build, first, all, run } = session;
  const jobs = () => build.selectFrom("upstream_jobs").selectAll("upstream_jobs");
  return {
    databaseId: async () => (await first(build.selectFrom("database_identity").select("id")))?.id ?? "",
    insert: async (job) => {
      await run(build.insertInto("upstream_jobs").values(toRow(job) as Insertable<UpstreamJobsTable>));
    },
    byId: async (id) => {
      const row = await first(jobs().where("id", "=", id));
      return row && toRecord(row);
    },
    update: async (id, change) => {
      await run(build.updateTable("upstream_jobs").set(toRow(change)).where("id", "=", id));
    },
    ofBatch: async (batchId) =>
      (await all(jobs().where("batch_id", "=", batchId).orderBy("created_at_ms").orderBy("id"))).map(
        toRecord,
      ),
    toClose: async () => {
      const open = jobs()
        .innerJoin("batches", "batches.id", "upstream_jobs.batch_id")
        .where("step", "!=", "closed")
        .where((eb) =>
          eb.or([eb("step", "=", "done"), eb("batches.status", "not in", [...MAKING_BATCH_STATUSES])]),
        );
      return (await all(open.orderBy("upstream_jobs.created_at_ms"))).map(toRecord);
    },
    atWork: async () => {
      const counts = build
        .selectFrom("upstream_jobs")
        .innerJoin("batches", "batches.id", "upstream_jobs.batch_id")
        .select(["batches.provider", (eb) => eb.fn.countAll<number>().as("count")])
        .where("step", "not in", [...AFTER_WORK])
        .groupBy("batches.provider");
      return all(counts);
    },
  };
}

function toRow(job: Partial<UpstreamJobRecord>): Updateable<UpstreamJobsTable> {
  const row = {
    id: job.id,
    batch_id: job.batchId,
    step: job.step,
    has_references: job.hasReferences === undefined ? undefined : Number(job.hasReferences),
    input: job.input,
    uploaded_at_ms: job.uploadedAtMs,
    upstream_name: job.upstreamName,
    ended_names: job.endedNames && JSON.stringify(job.endedNames),
    creates: job.creates,
    sent_at_ms: job.sentAtMs,
    state: job.state,
    said: job.said,
    error: job.error,
    results: job.results,
    created_at_ms: job.createdAtMs,
    polled_at_ms: job.polledAtMs,
    stop_asked_at_ms: job.stopAskedAtMs,
    ended_at_ms: job.endedAtMs,
    closed_at_ms: job.closedAtMs,
  };
  return Object.fromEntries(Object.entries(row).filter(([, value]) => value !== undefined));
}

function toRecord(row: Selectable<UpstreamJobsTable>): UpstreamJobRecord {
  return {
    id: row.id,
    batchId: row.batch_id,
    step: row.step as JobStep,
    hasReferences: row.has_references === 1,
    input: row.input,
    uploadedAtMs: row.uploaded_at_ms,
    upstreamName: row.upstream_name,
    endedNames: JSON.parse(row.ended_names),
    creates: row.creates,
    sentAtMs: row.sent_at_ms,
    state: row.state as JobState | null,
    said: row.said,
    error: row.error,
    results: row.results,
    createdAtMs: row.created_at_ms,
    polledAtMs: row.polled_at_ms,
    stopAskedAtMs: row.stop_asked_at_ms,
    endedAtMs: row.ended_at_ms,
    closedAtMs: row.closed_at_ms,
  };
}
