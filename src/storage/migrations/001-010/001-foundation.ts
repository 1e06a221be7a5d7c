import { type ColumnDefinitionBuilder, sql } from "kysely";
import type { Migration } from "../migration.ts";

const required = (c: ColumnDefinitionBuilder) => c.notNull();
const zero = (c: ColumnDefinitionBuilder) => c.notNull().defaultTo(0);
const key = (c: ColumnDefinitionBuilder) => c.primaryKey();
const counter = (c: ColumnDefinitionBuilder) => c.primaryKey().autoIncrement();
const unique = (c: ColumnDefinitionBuilder) => c.notNull().unique();

/** Accounts, keys, ledger, batches with their items, files and history. */
export const foundation: Migration = {
  name: "001-foundation",
  statements: ({ build: { schema } }) => [
    schema
      .createTable("accounts")
      .addColumn("id", "text", key)
      .addColumn("name", "text", unique)
      .addColumn("balance_micro_usd", "bigint", (c) => zero(c).check(sql`balance_micro_usd >= 0`))
      .addColumn("held_micro_usd", "bigint", (c) => zero(c).check(sql`held_micro_usd >= 0`))
      .addColumn("created_at_ms", "bigint", required),
    schema
      .createTable("api_keys")
      .addColumn("id", "text", key)
      .addColumn("sha256", "text", unique)
      .addColumn("name", "text", required)
      .addColumn("prefix", "text", required)
      .addColumn("account_id", "text", (c) => required(c).references("accounts.id"))
      .addColumn("group_name", "text", required)
      .addColumn("created_at_ms", "bigint", required)
      .addColumn("expires_at_ms", "bigint")
      .addColumn("disabled_at_ms", "bigint"),
    schema
      .createTable("batches")
      .addColumn("seq", "integer", counter)
      .addColumn("id", "text", unique)
      .addColumn("api_key_id", "text", (c) => required(c).references("api_keys.id"))
      .addColumn("account_id", "text", (c) => required(c).references("accounts.id"))
      .addColumn("task_name", "text", required)
      .addColumn("task_name_folded", "text", required)
      .addColumn("status", "text", required)
      .addColumn("model", "text", required)
      .addColumn("mime_type", "text", required)
      .addColumn("parent_batch_id", "text")
      .addColumn("metadata", "text")
      .addColumn("provider", "text", required)
      .addColumn("item_count", "integer", required)
      .addColumn("success_count", "integer", zero)
      .addColumn("fail_count", "integer", zero)
      .addColumn("price", "text", required)
      .addColumn("estimated_micro_usd", "bigint", required)
      .addColumn("hold_micro_usd", "bigint", required)
      .addColumn("actual_micro_usd", "bigint")
      .addColumn("created_at_ms", "bigint", required)
      .addColumn("submitted_at_ms", "bigint", required)
      .addColumn("ended_at_ms", "bigint")
      .addColumn("settled_at_ms", "bigint")
      .addColumn("downloaded_at_ms", "bigint")
      .addColumn("output_deleted_at_ms", "bigint")
      .addColumn("outputs_expire_at_ms", "bigint")
      .addColumn("record_deleted_at_ms", "bigint")
      .addColumn("outputs_purged_at_ms", "bigint")
      .addColumn("inputs_purged_at_ms", "bigint")
      .addColumn("error", "text"),
    schema.createIndex("batches_by_key").on("batches").columns(["api_key_id", "created_at_ms", "seq"]),
    schema
      .createIndex("batches_by_key_and_status")
      .on("batches")
      .columns(["api_key_id", "status", "created_at_ms", "seq"]),
    schema.createIndex("batches_by_end").on("batches").columns(["inputs_purged_at_ms", "ended_at_ms"]),
    schema.createIndex("batches_by_status").on("batches").columns(["status", "seq"]),
    schema
      .createTable("batch_events")
      .addColumn("seq", "integer", counter)
      .addColumn("batch_id", "text", (c) => required(c).references("batches.id"))
      .addColumn("from_status", "text")
      .addColumn("to_status", "text", required)
      .addColumn("at_ms", "bigint", required),
    schema.createIndex("events_by_batch").on("batch_events").columns(["batch_id", "seq"]),
    schema
      .createTable("ledger_entries")
      .addColumn("seq", "integer", counter)
      .addColumn("request_id", "text", unique)
      .addColumn("account_id", "text", (c) => required(c).references("accounts.id"))
      .addColumn("batch_id", "text")
      .addColumn("kind", "text", required)
      .addColumn("amount_micro_usd", "bigint", (c) => required(c).check(sql`amount_micro_usd >= 0`))
      .addColumn("balance_change_micro_usd", "bigint", required)
      .addColumn("held_change_micro_usd", "bigint", required)
      .addColumn("created_at_ms", "bigint", required),
    schema.createIndex("ledger_by_account").on("ledger_entries").columns(["account_id", "seq"]),
    schema.createIndex("ledger_by_batch").on("ledger_entries").columns(["batch_id", "seq"]),
    schema
      .createTable("items")
      .addColumn("id", "integer", counter)
      .addColumn("batch_id", "text", (c) => required(c).references("batches.id"))
      .addColumn("position", "integer", required)
      .addColumn("source_index", "integer", required)
      .addColumn("output_index", "integer", required)
      .addColumn("custom_id", "text", required)
      .addColumn("prompt", "text", required)
      .addColumn("status", "text", (c) => required(c).defaultTo("pending"))
      .addColumn("attempts", "integer", zero)
      .addColumn("not_before_ms", "bigint", zero)
      .addColumn("lease_token", "text")
      .addColumn("mime_type", "text")
      .addColumn("image_count", "integer", zero)
      .addColumn("error", "text")
      .addColumn("finished_at_ms", "bigint")
      .addUniqueConstraint("items_custom_id", ["batch_id", "custom_id"])
      .addUniqueConstraint("items_position", ["batch_id", "position"]),
    schema
      .createIndex("items_leased")
      .on("items")
      .column("lease_token")
      .where(sql.ref("lease_token"), "is not", null),
    schema.createIndex("items_by_status").on("items").columns(["batch_id", "status", "position"]),
    schema
      .createTable("outputs")
      .addColumn("item_id", "integer", (c) => required(c).references("items.id"))
      .addColumn("batch_id", "text", required)
      .addColumn("image_index", "integer", required)
      .addColumn("blob_key", "text", unique)
      .addColumn("size_bytes", "bigint", required)
      .addColumn("sha256", "text", required)
      .addColumn("crc32", "bigint", required)
      .addColumn("mime_type", "text", required)
      .addColumn("width_px", "integer", required)
      .addColumn("height_px", "integer", required)
      .addColumn("entry_name", "text")
      .addPrimaryKeyConstraint("outputs_key", ["item_id", "image_index"]),
    schema.createIndex("outputs_by_batch").on("outputs").columns(["batch_id"]),
    schema
      .createTable("reference_images")
      .addColumn("batch_id", "text", (c) => required(c).references("batches.id"))
      .addColumn("source_index", "integer", required)
      .addColumn("ordinal", "integer", required)
      .addColumn("reference_id", "text")
      .addColumn("type", "text")
      .addColumn("mime_type", "text", required)
      .addColumn("blob_key", "text")
      .addColumn("sha256", "text")
      .addColumn("storage_uri", "text")
      .addPrimaryKeyConstraint("references_key", ["batch_id", "source_index", "ordinal"]),
    schema
      .createTable("idempotency_keys")
      .addColumn("api_key_id", "text", required)
      .addColumn("key", "text", required)
      .addColumn("request_hash", "text", required)
      .addColumn("batch_id", "text", (c) => required(c).references("batches.id"))
      .addColumn("created_at_ms", "bigint", required)
      .addPrimaryKeyConstraint("idempotency_key", ["api_key_id", "key"]),
    schema
      .createTable("upstream_jobs")
      .addColumn("batch_id", "text", (c) => key(c).references("batches.id"))
      .addColumn("job_id", "text", unique)
      .addColumn("upstream_name", "text")
      .addColumn("created_at_ms", "bigint", required),
  ],
};
