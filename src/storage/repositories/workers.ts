import type { WorkerRepository, WorkerRole } from "../../domain/ports/workers.ts";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";

const BY_ID = kept((build, { id }: Values<{ id: string }>) =>
  build.selectFrom("workers").select("id").where("id", "=", id),
);

/** `clockMs` returns the time of the database. */
export function workerRepository(
  { build, all, first, run }: SqlSession,
  clockMs: () => Promise<number>,
): WorkerRepository {
  const seenOf = (id: string) => build.selectFrom("workers").select("seen_at_ms").where("id", "=", id);
  return {
    insert: async ({ id, role, version, providers, isPaused }) => {
      const facts = { id, role, version, providers: JSON.stringify(providers), is_paused: Number(isPaused) };
      await run(build.insertInto("workers").values({ ...facts, seen_at_ms: await clockMs() }));
    },
    beat: async (id, pauseMs) => {
      const nowMs = await clockMs();
      const seenMs = (await first(seenOf(id)))?.seen_at_ms ?? 0;
      const seen = build.updateTable("workers").set({ seen_at_ms: nowMs });
      const isAlive = (await run(seen.where("id", "=", id))) === 1;
      return { isAlive, wasAway: nowMs < seenMs || nowMs - seenMs > pauseMs };
    },
    isAlive: async (id) => ({ isAlive: (await first(BY_ID(build, { id }))) !== null }),
    list: async () =>
      (await all(build.selectFrom("workers").selectAll().orderBy("id"))).map((row) => ({
        id: row.id,
        role: row.role as WorkerRole,
        version: row.version,
        providers: JSON.parse(row.providers),
        isPaused: row.is_paused === 1,
      })),
    silenceMs: async () => {
      const makers = build.selectFrom("workers").where("role", "!=", "api");
      const last = await first(makers.select("seen_at_ms").orderBy("seen_at_ms", "desc").limit(1));
      return last === null ? null : (await clockMs()) - last.seen_at_ms;
    },
    removeSilent: async (id, termMs) =>
      run(build.deleteFrom("workers").where("seen_at_ms", "<", ({ eb }) => eb(seenOf(id), "-", termMs))),
    remove: async (id) => {
      await run(build.deleteFrom("workers").where("id", "=", id));
    },
    removeAll: async () => {
      await run(build.deleteFrom("workers"));
    },
    setPaused: async (isPaused) => {
      await run(build.updateTable("workers").set({ is_paused: Number(isPaused) }));
    },
  };
}

/** The ids of the workers that are alive, as a part of another query. */
export const liveWorkers = (build: SqlSession["build"]) => build.selectFrom("workers").select("id");
