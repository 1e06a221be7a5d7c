import { type ExpressionBuilder, sql } from "kysely";
import type { ProviderCallsRepository } from "../../../domain/ports/stores.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Database } from "../../schema.ts";

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

export function providerCallsRepository({ build, all, run }: SqlSession): ProviderCallsRepository {
  return {
    add: async (fromMs, { provider, model, lastSuccessMs, ...sums }) => {
      const row = Object.fromEntries(NAMES.map((name) => [SUMS[name], sums[name]]));
      const last = lastSuccessMs === null ? {} : { last_success_ms: lastSuccessMs };
      const insert = build
        .insertInto("provider_calls")
        .values({ from_ms: fromMs, provider, model, ...row, ...last });
      const added = (eb: ExpressionBuilder<Database, "provider_calls">) =>
        Object.fromEntries(
          NAMES.filter((name) => sums[name] !== 0).map((name) => [
            SUMS[name],
            eb(`provider_calls.${SUMS[name]}`, "+", sums[name]),
          ]),
        );
      await run(
        insert.onConflict((on) =>
          on.columns(["from_ms", "provider", "model"]).doUpdateSet((eb) => ({
            // A row is never left without an assignment.
            provider: eb.ref("provider_calls.provider"),
            ...added(eb),
            ...last,
          })),
        ),
      );
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
