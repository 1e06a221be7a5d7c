import type { UpstreamJobRepository } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

export function upstreamJobRepository({ build, first, run }: SqlSession): UpstreamJobRepository {
  return {
    ofBatch: (batchId) => {
      const row = first(build.selectFrom("upstream_jobs").selectAll().where("batch_id", "=", batchId));
      if (!row) return null;
      const { job_id: jobId, upstream_name: upstreamName, created_at_ms: createdAtMs } = row;
      return { batchId, jobId, upstreamName, createdAtMs };
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
  };
}
