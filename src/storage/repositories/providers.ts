import { sql } from "kysely";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { ProviderCalls } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";

const SUMS = [
  ...(["requests", "images", "errors", "maybePaidTwice"] as const),
  ...(["billedMicroUsd", "costMicroUsd", "inputTokens", "outputTokens"] as const),
] as const;

/** Adds to the sums of a row, which is made when there is none. */
const ADD_CALLS = prepared((build, call: Values<ProviderCalls & { fromMs: number }>) => {
  const { fromMs, provider, model, lastSuccessMs, requests, images, errors, maybePaidTwice } = call;
  const { billedMicroUsd, costMicroUsd, inputTokens, outputTokens } = call;
  const counts = { requests, images, errors, maybePaidTwice };
  const sums = { ...counts, billedMicroUsd, costMicroUsd, inputTokens, outputTokens };
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

export function providerCallsRepository({
  build,
  dialect,
  all,
  run,
}: SqlSession): Repositories["providerCalls"] {
  // The same for the whole transaction: two that locked several rows in another order would wait for each other.
  const row = dialect === "sqlite" ? 0 : Math.floor(Math.random() * ROWS_AT_A_TIME);
  return {
    add: async (fromMs, calls) => {
      await run(ADD_CALLS(build, { ...calls, fromMs: fromMs + row }));
    },
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

export function providerHealthRepository({ build, all, run }: SqlSession): Repositories["providerHealth"] {
  return {
    list: async () => {
      const rows = await all(build.selectFrom("provider_health").selectAll());
      return rows.map(({ facts, ...row }) => ({ ...row, ...facts }));
    },
    put: async ({ provider, model, fingerprint, state, untilMs, ...facts }) => {
      const row = { fingerprint, state, untilMs, facts };
      const insert = build.insertInto("provider_health").values({ provider, model, ...row });
      await run(insert.onConflict((on) => on.columns(["provider", "model"]).doUpdateSet(row)));
    },
  };
}
