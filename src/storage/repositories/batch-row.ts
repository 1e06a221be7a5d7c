import type { Insertable, Selectable, Updateable } from "kysely";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { BatchSource, BatchStatus } from "../../contract/statuses.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { BatchesTable } from "../schema.ts";

/** The field that each column holds. A `json` column holds it as JSON text. */
const COLUMNS = {
  id: "id",
  apiKeyId: "api_key_id",
  accountId: "account_id",
  taskName: "task_name",
  status: "status",
  model: "model",
  mimeType: "mime_type",
  parentBatchId: "parent_batch_id",
  metadata: "metadata",
  provider: "provider",
  itemCount: "item_count",
  successCount: "success_count",
  failCount: "fail_count",
  price: "price",
  estimatedMicroUsd: "estimated_micro_usd",
  holdMicroUsd: "hold_micro_usd",
  actualMicroUsd: "actual_micro_usd",
  createdAtMs: "created_at_ms",
  submittedAtMs: "submitted_at_ms",
  endedAtMs: "ended_at_ms",
  settledAtMs: "settled_at_ms",
  downloadedAtMs: "downloaded_at_ms",
  outputDeletedAtMs: "output_deleted_at_ms",
  outputsExpireAtMs: "outputs_expire_at_ms",
  recordDeletedAtMs: "record_deleted_at_ms",
  outputsPurgedAtMs: "outputs_purged_at_ms",
  inputsPurgedAtMs: "inputs_purged_at_ms",
  error: "error",
  upstream: "upstream",
  waitingSinceMs: "waiting_since_ms",
  waiting: "waiting",
  source: "source",
  input: "input",
  inputReadAtMs: "input_read_at_ms",
} as const satisfies Record<keyof BatchRecord, keyof BatchesTable>;

const JSON_FIELDS = new Set<string>(["metadata", "price", "error", "waiting", "input"]);

/** The columns of the fields that are given. */
export function toBatchColumns(fields: Partial<BatchRecord>): Updateable<BatchesTable> {
  const columns: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(fields)) {
    const isJson = JSON_FIELDS.has(field) && value !== null;
    columns[COLUMNS[field as keyof BatchRecord]] = isJson ? JSON.stringify(value) : value;
  }
  return columns;
}

export function toBatchRow(batch: BatchRecord): Insertable<BatchesTable> {
  const columns = { ...toBatchColumns(batch), task_name_folded: batch.taskName.toLowerCase() };
  return columns as Insertable<BatchesTable>;
}

export function toBatchRecord(row: Selectable<BatchesTable>): BatchRecord {
  return {
    id: row.id,
    apiKeyId: row.api_key_id,
    accountId: row.account_id,
    taskName: row.task_name,
    status: row.status as BatchStatus,
    model: row.model,
    mimeType: row.mime_type as ImageMimeType,
    parentBatchId: row.parent_batch_id,
    metadata: row.metadata === null ? null : JSON.parse(row.metadata),
    provider: row.provider,
    itemCount: row.item_count,
    successCount: row.success_count,
    failCount: row.fail_count,
    price: JSON.parse(row.price),
    estimatedMicroUsd: row.estimated_micro_usd,
    holdMicroUsd: row.hold_micro_usd,
    actualMicroUsd: row.actual_micro_usd,
    createdAtMs: row.created_at_ms,
    submittedAtMs: row.submitted_at_ms,
    endedAtMs: row.ended_at_ms,
    settledAtMs: row.settled_at_ms,
    downloadedAtMs: row.downloaded_at_ms,
    outputDeletedAtMs: row.output_deleted_at_ms,
    outputsExpireAtMs: row.outputs_expire_at_ms,
    recordDeletedAtMs: row.record_deleted_at_ms,
    outputsPurgedAtMs: row.outputs_purged_at_ms,
    inputsPurgedAtMs: row.inputs_purged_at_ms,
    error: row.error === null ? null : JSON.parse(row.error),
    upstream: row.upstream,
    waitingSinceMs: row.waiting_since_ms,
    waiting: row.waiting === null ? null : JSON.parse(row.waiting),
    source: row.source as BatchSource,
    input: row.input === null ? null : JSON.parse(row.input),
    inputReadAtMs: row.input_read_at_ms,
  };
}
