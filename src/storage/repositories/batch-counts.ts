import { sql } from "kysely";
import type { BatchStatus } from "../../contract/statuses.ts";
import type { BatchEvent } from "../../domain/records.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

/** An event whose number is a multiple of this adds the earlier ones to the counts, in its own transaction. */
const EVENTS_A_COUNT = 256;

const INSERT = kept((build, event: Values<BatchEvent>) =>
  build
    .insertInto("batch_events")
    .values({
      batch_id: event.batchId,
      from_status: event.from,
      to_status: event.to,
      at_ms: event.atMs,
      uncounted: 1,
    })
    .returning("seq"),
);

/**
 * Writes a line of a history. The counts follow later: transactions that all changed the same row would wait for each
 * other.
 */
export async function insertEvent(session: SqlSession, event: BatchEvent): Promise<void> {
  const written = await session.first(INSERT(session.build, event));
  if (written !== null && written.seq % EVENTS_A_COUNT === 0) await addToCounts(session);
}

/** Adds the uncounted events to the counts. Does nothing while another transaction does so: nobody waits for it. */
async function addToCounts({ build, dialect, all, run }: SqlSession): Promise<void> {
  if (dialect === "postgres") {
    const rows = build.selectFrom("batch_counts").select("status").orderBy("status");
    const locked = await all(rows.forUpdate().skipLocked());
    const { length } = await all(build.selectFrom("batch_counts").select("status"));
    if (locked.length < length) return;
  }
  const events = build.updateTable("batch_events").set({ uncounted: null });
  const added = await all(events.where("uncounted", "is not", null).returning(["from_status", "to_status"]));
  const changes = new Map<string, number>();
  const change = (status: string | null, by: number) => {
    if (status !== null) changes.set(status, (changes.get(status) ?? 0) + by);
  };
  for (const { from_status, to_status } of added) {
    change(from_status, -1);
    change(to_status, 1);
  }
  for (const [status, by] of changes) {
    const row = build.insertInto("batch_counts").values({ status, count: by });
    const added = row.onConflict((on) =>
      on.column("status").doUpdateSet((eb) => ({ count: eb("batch_counts.count", "+", by) })),
    );
    await run(added);
  }
}

/** How many batches have each status, without a look at the batches. One statement, which sees one state. */
export async function countBatches({
  build,
  all,
}: SqlSession): Promise<Partial<Record<BatchStatus, number>>> {
  const uncounted = build.selectFrom("batch_events").where("uncounted", "is not", null);
  const changes = build
    .selectFrom("batch_counts")
    .select(["status", "count as change"])
    .unionAll(uncounted.select(["to_status as status", sql<number>`1`.as("change")]))
    .unionAll(
      uncounted
        .select((eb) => [eb.ref("from_status").$notNull().as("status"), sql<number>`-1`.as("change")])
        .where("from_status", "is not", null),
    );
  const sums = build
    .selectFrom(changes.as("changes"))
    .select((eb) => ["status", eb.fn.sum<number>("change").as("count")])
    .groupBy("status");
  const counts = (await all(sums)).filter(({ count }) => count !== 0);
  return Object.fromEntries(counts.map(({ status, count }) => [status, count]));
}
