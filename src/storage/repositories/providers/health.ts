import type { ProviderHealthRepository } from "../../../domain/ports/stores.ts";
import type { HealthRecord } from "../../../domain/records.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";

export function providerHealthRepository({ build, all, run }: SqlSession): ProviderHealthRepository {
  return {
    list: async () =>
      (await all(build.selectFrom("provider_health").selectAll())).map((row) => ({
        provider: row.provider,
        model: row.model,
        fingerprint: row.fingerprint,
        state: row.state as HealthRecord["state"],
        untilMs: row.until_ms,
        ...JSON.parse(row.facts),
      })),
    put: async ({ provider, model, fingerprint, state, untilMs, ...rest }) => {
      const row = { fingerprint, state, until_ms: untilMs, facts: JSON.stringify(rest) };
      const insert = build.insertInto("provider_health").values({ provider, model, ...row });
      await run(insert.onConflict((on) => on.columns(["provider", "model"]).doUpdateSet(row)));
    },
  };
}
