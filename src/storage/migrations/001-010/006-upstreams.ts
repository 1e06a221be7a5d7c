import type { ColumnDefinitionBuilder } from "kysely";
import type { SqlSession } from "../../dialects/sql-session.ts";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();
const count = (c: ColumnDefinitionBuilder) => c.notNull().defaultTo(0);

/** The first balance of the account `default` for a service that only draws. */
const PLAY_MONEY_MICRO_USD = 1_000_000_000;

/** The only money that the account got is the first balance of a service that only draws. */
function markPlayMoney({ build }: SqlSession) {
  return build
    .updateTable("accounts")
    .set({ is_play: 1 })
    .where("name", "=", "default")
    .where("id", "in", (eb) =>
      eb
        .selectFrom("ledger_entries")
        .select("account_id")
        .where("kind", "=", "top_up")
        .groupBy("account_id")
        .having((each) => each.fn.countAll(), "=", 1)
        .having((each) => each.fn.max("amount_micro_usd"), "=", PLAY_MONEY_MICRO_USD),
    );
}

/** The health of upstreams, what they were asked, what each item knows of the one that made it, and play money. */
export const upstreams: Migration = {
  name: "006-upstreams",
  statements: (session) => {
    const { schema } = session.build;
    return [
      schema
        .createTable("provider_health")
        .addColumn("provider", "text", required)
        .addColumn("model", "text", required)
        .addColumn("fingerprint", "text", required)
        .addColumn("state", "text", required)
        .addColumn("until_ms", "bigint")
        .addColumn("facts", "text", required)
        .addPrimaryKeyConstraint("provider_health_key", ["provider", "model"]),
      schema
        .createTable("provider_calls")
        .addColumn("from_ms", "bigint", required)
        .addColumn("provider", "text", required)
        .addColumn("model", "text", required)
        .addColumn("requests", "bigint", count)
        .addColumn("images", "bigint", count)
        .addColumn("errors", "bigint", count)
        .addColumn("maybe_paid_twice", "bigint", count)
        .addColumn("billed_micro_usd", "bigint", count)
        .addColumn("cost_micro_usd", "bigint", count)
        .addColumn("input_tokens", "bigint", count)
        .addColumn("output_tokens", "bigint", count)
        .addColumn("last_success_ms", "bigint")
        .addPrimaryKeyConstraint("provider_calls_key", ["from_ms", "provider", "model"]),
      schema.alterTable("batches").addColumn("upstream", "text", (c) => c.notNull().defaultTo("procedural")),
      schema.alterTable("batches").addColumn("waiting_since_ms", "bigint"),
      schema.alterTable("items").addColumn("provider", "text"),
      schema.alterTable("items").addColumn("failed_at", "text"),
      schema.alterTable("items").addColumn("switches", "integer", count),
      schema.alterTable("items").addColumn("maybe_paid", "text", (c) => c.notNull().defaultTo("no")),
      schema.alterTable("items").addColumn("seed", "bigint"),
      schema.alterTable("items").addColumn("notes", "text"),
      schema.alterTable("items").addColumn("usage", "text"),
      schema.alterTable("accounts").addColumn("is_play", "integer", count),
      schema.alterTable("accounts").addColumn("real_account_id", "text"),
      markPlayMoney(session),
    ];
  },
};
