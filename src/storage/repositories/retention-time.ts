import type { Repositories } from "../../domain/ports/stores.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

/** The table has one row at most. */
const ONLY = 1;

export function retentionTimeRepository({ build, first, run }: SqlSession): Repositories["retentionTime"] {
  return {
    read: async () => {
      const row = await first(build.selectFrom("retention_time").selectAll().where("id", "=", ONLY));
      return row && { seenMs: row.seenMs, pausedUntilMs: row.pausedUntilMs };
    },
    write: async (time) => {
      const insert = build.insertInto("retention_time").values({ id: ONLY, ...time });
      await run(insert.onConflict((on) => on.column("id").doUpdateSet(time)));
    },
  };
}
