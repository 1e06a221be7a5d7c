import type { BatchStatus } from "../../contract/statuses.ts";
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
    withStatus: (statuses) =>
      all(
        batches()
          .where("status", "in", [...statuses])
          .orderBy("seq"),
      ).map(toBatchRecord),
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
    all: () => all(batches().orderBy("seq")).map(toBatchRecord),
  };
}
