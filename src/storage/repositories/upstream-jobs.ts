import type { Selectable } from "kysely";
import { MAKING_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { JobStep, UpstreamJobRecord, UpstreamJobRepository } from "../../domain/ports/batches.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";
import { columnsOf, insertRows } from "./rows.ts";

/** Steps after which the upstream has nothing left to make. */
const AFTER_WORK: readonly JobStep[] = ["done", "closed"];

export function upstreamJobRepository(session: SqlSession): UpstreamJobRepository {
  const { build, first, all, run } = session;
  const jobs = () => build.selectFrom("upstream_jobs").selectAll("upstream_jobs");
  return {
    databaseId: async () => (await first(build.selectFrom("database_identity").select("id")))?.id ?? "",
    insert: async (job) => {
      await insertRows(session, "upstream_jobs", [
        { ...rowOf(job), inputName: job.input, failure: job.error },
      ]);
    },
    byId: async (id) => {
      const row = await first(jobs().where("id", "=", id));
      return row && recordOf(row);
    },
    update: async (id, change) => {
      await run(
        build
          .updateTable("upstream_jobs")
          .set(columnsOf("upstream_jobs", rowOf(change)))
          .where("id", "=", id),
      );
    },
    ofBatch: async (batchId) =>
      (await all(jobs().where("batchId", "=", batchId).orderBy("createdAtMs").orderBy("id"))).map(recordOf),
    toClose: async () => {
      const open = jobs()
        .innerJoin("batches", "batches.id", "upstream_jobs.batchId")
        .where("step", "!=", "closed")
        .where((eb) =>
          eb.or([eb("step", "=", "done"), eb("batches.status", "not in", [...MAKING_BATCH_STATUSES])]),
        );
      return (await all(open.orderBy("upstream_jobs.createdAtMs"))).map(recordOf);
    },
    atWork: async () => {
      const counts = build
        .selectFrom("upstream_jobs")
        .innerJoin("batches", "batches.id", "upstream_jobs.batchId")
        .select(["batches.provider", (eb) => eb.fn.countAll<number>().as("count")])
        .where("step", "not in", [...AFTER_WORK])
        .groupBy("batches.provider");
      return all(counts);
    },
  };
}

/** Two fields have other names in the table, because columns named `input` and `error` hold JSON. */
function rowOf<Job extends Partial<UpstreamJobRecord>>({ input, error, ...rest }: Job) {
  return {
    ...rest,
    ...(input === undefined ? {} : { inputName: input }),
    ...(error === undefined ? {} : { failure: error }),
  };
}

function recordOf({ inputName, failure, ...rest }: Selectable<Database["upstream_jobs"]>): UpstreamJobRecord {
  return { ...rest, input: inputName, error: failure };
}
