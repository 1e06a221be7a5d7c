import type { RequestCountRepository } from "../../../domain/ports/shared-records.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";

export function requestCountRepository({ build, first, run }: SqlSession): RequestCountRepository {
  return {
    add: async (apiKeyId, second, oldestSecond) => {
      const old = build.deleteFrom("request_counts").where("api_key_id", "=", apiKeyId);
      await run(old.where("second", "<", oldestSecond));
      const row = { api_key_id: apiKeyId, second, count: 1 };
      const insert = build.insertInto("request_counts").values(row);
      await run(
        insert.onConflict((on) =>
          on
            .columns(["api_key_id", "second"])
            .doUpdateSet((eb) => ({ count: eb("request_counts.count", "+", 1) })),
        ),
      );
    },
    since: async (apiKeyId, second) => {
      const query = build
        .selectFrom("request_counts")
        .select(({ fn }) => [fn.sum<number | null>("count").as("count"), fn.min("second").as("first_second")])
        .where("api_key_id", "=", apiKeyId)
        .where("second", ">=", second);
      const row = await first(query);
      return { count: row?.count ?? 0, firstSecond: row?.first_second ?? null };
    },
  };
}
