import type { Repositories } from "../../domain/ports/stores.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { insertRows } from "./rows.ts";

const BY_ID = prepared((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("workers").select("id").where("id", "=", id),
);

function workerRepository(session: SqlSession, clockMs: () => Promise<number>): Repositories["workers"] {
  const { build, all, first, run, changes } = session;
  const seenOf = (id: string) => build.selectFrom("workers").select("seenAtMs").where("id", "=", id);
  return {
    insert: async (worker) => insertRows(session, "workers", [{ ...worker, seenAtMs: await clockMs() }]),
    heartbeat: async (id, pauseMs) => {
      const nowMs = await clockMs();
      const seenMs = (await first(seenOf(id)))?.seenAtMs ?? 0;
      const seen = build.updateTable("workers").set({ seenAtMs: nowMs });
      const isAlive = (await changes(seen.where("id", "=", id))) === 1;
      return { isAlive, wasAway: nowMs < seenMs || nowMs - seenMs > pauseMs };
    },
    isAlive: async (id) => ({ isAlive: (await first(BY_ID(build, { id }))) !== null }),
    list: () =>
      all(
        build.selectFrom("workers").select(["id", "role", "version", "providers", "isPaused"]).orderBy("id"),
      ),
    silenceMs: async () => {
      const makers = build.selectFrom("workers").where("role", "!=", "api");
      const last = await first(makers.select("seenAtMs").orderBy("seenAtMs", "desc").limit(1));
      return last === null ? null : (await clockMs()) - last.seenAtMs;
    },
    removeSilent: async (id, termMs) =>
      changes(build.deleteFrom("workers").where("seenAtMs", "<", ({ eb }) => eb(seenOf(id), "-", termMs))),
    remove: (id) => run(build.deleteFrom("workers").where("id", "=", id)),
    removeAll: () => run(build.deleteFrom("workers")),
    setPaused: (isPaused) => run(build.updateTable("workers").set({ isPaused })),
  };
}

/** The ids of the workers that are alive, as a part of another query. */
export const liveWorkers = (build: SqlSession["build"]) => build.selectFrom("workers").select("id");

/** The table has one row at most. */
const ONLY = 1;

function retentionTimeRepository({ build, first, run }: SqlSession): Repositories["retentionTime"] {
  return {
    read: async () => {
      const row = await first(build.selectFrom("retention_time").selectAll().where("id", "=", ONLY));
      return row && { seenMs: row.seenMs, pausedUntilMs: row.pausedUntilMs, servedMs: row.servedMs };
    },
    write: async (time) => {
      const insert = build.insertInto("retention_time").values({ id: ONLY, ...time });
      await run(insert.onConflict((on) => on.column("id").doUpdateSet(time)));
    },
  };
}

/** `clockMs` returns the time of the database. */
export const workerRepositories = (session: SqlSession, clockMs: () => Promise<number>) => ({
  workers: workerRepository(session, clockMs),
  retentionTime: retentionTimeRepository(session),
});
