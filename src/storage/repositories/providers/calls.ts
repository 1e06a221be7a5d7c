import { sql } from "kysely";
import type { ProviderCallsRepository } from "../../../domain/ports/stores.ts";
import type { ProviderCalls } from "../../../domain/records.ts";
import { kept, type Values } from "../../dialects/kept-query.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";

const SUMS = {
  requests: "requests",
  images: "images",
  errors: "errors",
  maybePaidTwice: "maybe_paid_twice",
  billedMicroUsd: "billed_micro_usd",
  costMicroUsd: "cost_micro_usd",
  inputTokens: "input_tokens",
  outputTokens: "output_tokens",
} as const;
type Sum = keyof typeof SUMS;
const NAMES = Object.keys(SUMS) as Sum[];

/** Adds to the sums of a row, which is made when there is none. */
const ADD = kept((build, call: Values<ProviderCalls & { fromMs: number }>) => {
  const added = Object.fromEntries(NAMES.map((name) => [SUMS[name], call[name]]));
  const { fromMs, provider, model, lastSuccessMs } = call;
  return build
    .insertInto("provider_calls")
    .values({ from_ms: fromMs, provider, model, last_success_ms: lastSuccessMs, ...added })
    .onConflict((on) =>
      on.columns(["from_ms", "provider", "model"]).doUpdateSet((eb) => ({
        ...Object.fromEntries(
          NAMES.map((name) => [
            SUMS[name],
            eb(`provider_calls.${SUMS[name]}`, "+", eb.ref(`excluded.${SUMS[name]}`)),
          ]),
        ),
        last_success_ms: eb.fn.coalesce("excluded.last_success_ms", "provider_calls.last_success_ms"),
      })),
    );
});

/**
 * A row is locked until its transaction is durable, and nearly every transaction adds to one. So each of PostgreSQL's adds
 * to one of these many rows of the same time, which begin a millisecond apart.
 */
const ROWS_AT_A_TIME = 64;

export function providerCallsRepository({ build, dialect, all, run }: SqlSession): ProviderCallsRepository {
  // The same for the whole transaction: two that locked several rows in another order would wait for each other.
  const row = dialect === "sqlite" ? 0 : Math.floor(Math.random() * ROWS_AT_A_TIME);
  return {
    add: async (fromMs, calls) => {
      await run(ADD(build, { ...calls, fromMs: fromMs + row }));
    },
    list: async ({ fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER }) => {
      const query = build
        .selectFrom("provider_calls")
        .select(["provider", "model"])
        .select(sql<number>`from_ms / 86400000 * 86400000`.as("day_ms"))
        .select((eb) => NAMES.map((name) => eb.fn.sum<number>(SUMS[name]).as(name)))
        .select((eb) => eb.fn.max("last_success_ms").as("lastSuccessMs"))
        .where("from_ms", ">=", fromMs)
        .where("from_ms", "<", beforeMs)
        .groupBy(["day_ms", "provider", "model"])
        .orderBy("day_ms")
        .orderBy("provider")
        .orderBy("model");
      return (await all(query)).map(({ day_ms, ...row }) => ({ dayMs: day_ms, ...row }));
    },
  };
}
