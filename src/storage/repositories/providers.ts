import { type Selectable, sql } from "kysely";
import { MAKING_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { JobStep, Repositories, UpstreamJobRecord } from "../../domain/ports/stores.ts";
import type { ProviderCalls } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";
import { columnsOf, insertRows } from "./rows.ts";

const SUMS = [
  ...(["requests", "images", "errors", "maybePaidTwice"] as const),
  ...(["billedMicroUsd", "costMicroUsd", "unreportedMicroUsd", "inputTokens", "outputTokens"] as const),
] as const;

/** Adds to the sums of a row, which is made when there is none. */
const ADD_CALLS = prepared((build, call: Values<ProviderCalls & { fromMs: number }>) => {
  const { fromMs, provider, model, lastSuccessMs, requests, images, errors, maybePaidTwice } = call;
  const { billedMicroUsd, costMicroUsd, unreportedMicroUsd, inputTokens, outputTokens } = call;
  const counts = { requests, images, errors, maybePaidTwice };
  const sums = { ...counts, billedMicroUsd, costMicroUsd, unreportedMicroUsd, inputTokens, outputTokens };
  return build
    .insertInto("provider_calls")
    .values({ fromMs, provider, model, lastSuccessMs, ...sums })
    .onConflict((on) =>
      on.columns(["fromMs", "provider", "model"]).doUpdateSet((eb) => ({
        ...Object.fromEntries(
          SUMS.map((name) => [name, eb(`provider_calls.${name}`, "+", eb.ref(`excluded.${name}`))]),
        ),
        lastSuccessMs: eb.fn.coalesce("excluded.lastSuccessMs", "provider_calls.lastSuccessMs"),
      })),
    );
});

/**
 * A row is locked until its transaction is durable, and nearly every transaction adds to one. So each of PostgreSQL's adds
 * to one of these many rows of the same time, which begin a millisecond apart.
 */
const ROWS_AT_A_TIME = 64;

function providerCallsRepository({ build, dialect, all, run }: SqlSession): Repositories["providerCalls"] {
  // The same for the whole transaction: two that locked several rows in another order would wait for each other.
  const row = dialect === "sqlite" ? 0 : Math.floor(Math.random() * ROWS_AT_A_TIME);
  return {
    add: (fromMs, calls) => run(ADD_CALLS(build, { ...calls, fromMs: fromMs + row })),
    list: async ({ fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER }) => {
      const query = build
        .selectFrom("provider_calls")
        .select(["provider", "model"])
        .select(sql<number>`from_ms / 86400000 * 86400000`.as("dayMs"))
        .select((eb) => SUMS.map((name) => eb.fn.sum<number>(name).as(name)))
        .select((eb) => eb.fn.max("lastSuccessMs").as("lastSuccessMs"))
        .where("fromMs", ">=", fromMs)
        .where("fromMs", "<", beforeMs)
        .groupBy(["dayMs", "provider", "model"])
        .orderBy("dayMs")
        .orderBy("provider")
        .orderBy("model");
      return all(query);
    },
  };
}

/** Steps after which the upstream has nothing left to make. */
const AFTER_WORK: readonly JobStep[] = ["done", "closed"];

function upstreamJobRepository(session: SqlSession): Repositories["upstreamJobs"] {
  const { build, first, all, run } = session;
  const jobs = () => build.selectFrom("upstream_jobs").selectAll("upstream_jobs");
  return {
    databaseId: async () => (await first(build.selectFrom("database_identity").select("id")))?.id ?? "",
    insert: (job) =>
      insertRows(session, "upstream_jobs", [{ ...rowOf(job), inputName: job.input, failure: job.error }]),
    byId: async (id) => {
      const row = await first(jobs().where("id", "=", id));
      return row && recordOf(row);
    },
    update: (id, change) =>
      run(
        build
          .updateTable("upstream_jobs")
          .set(columnsOf("upstream_jobs", rowOf(change)))
          .where("id", "=", id),
      ),
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

export const providerRepositories = (session: SqlSession) => ({
  providerCalls: providerCallsRepository(session),
  upstreamJobs: upstreamJobRepository(session),
});
