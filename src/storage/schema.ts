import type { Generated } from "kysely";
import type {
  KeyedRequestsTable,
  LinkedImagesTable,
  RealtimeHoldsTable,
  RequestCountsTable,
  TimedSecretsTable,
  UploadsTable,
  UsageRecordsTable,
} from "./realtime-tables.ts";

/**
 * The tables, as Kysely sees them. Columns are integers and text only, so that any SQL database can hold them:
 * times are milliseconds since 1970, money is micro-dollars, JSON is text.
 */
export interface Database {
  accounts: AccountsTable;
  api_keys: ApiKeysTable;
  ledger_entries: LedgerEntriesTable;
  batches: BatchesTable;
  batch_events: BatchEventsTable;
  items: ItemsTable;
  outputs: OutputsTable;
  reference_images: ReferenceImagesTable;
  idempotency_keys: IdempotencyKeysTable;
  upstream_jobs: UpstreamJobsTable;
  database_identity: DatabaseIdentityTable;
  realtime_holds: RealtimeHoldsTable;
  usage_records: UsageRecordsTable;
  retention_time: RetentionTimeTable;
  provider_health: ProviderHealthTable;
  provider_calls: ProviderCallsTable;
  files: FilesTable;
  keyed_requests: KeyedRequestsTable;
  linked_images: LinkedImagesTable;
  timed_secrets: TimedSecretsTable;
  uploads: UploadsTable;
  request_counts: RequestCountsTable;
  workers: WorkersTable;
  schema_migrations: { name: string /** 0 or 1. */; is_additive: Generated<number> };
}

interface WorkersTable {
  id: string;
  role: string;
  version: string;
  /** A list, as JSON. */
  providers: string;
  /** 0 or 1. */
  is_paused: number;
  seen_at_ms: number;
}

interface AccountsTable {
  id: string;
  name: string;
  balance_micro_usd: Generated<number>;
  held_micro_usd: Generated<number>;
  created_at_ms: number;
  /** 0 or 1. */
  is_play: Generated<number>;
  real_account_id: Generated<string | null>;
}

interface ApiKeysTable {
  id: string;
  sha256: string;
  name: string;
  prefix: string;
  account_id: string;
  group_name: string;
  created_at_ms: number;
  expires_at_ms: number | null;
  disabled_at_ms: number | null;
  enabled_at_ms: Generated<number | null>;
}

interface LedgerEntriesTable {
  seq: Generated<number>;
  request_id: string;
  account_id: string;
  batch_id: string | null;
  kind: string;
  amount_micro_usd: number;
  balance_change_micro_usd: number;
  held_change_micro_usd: number;
  created_at_ms: number;
}

export interface BatchesTable {
  seq: Generated<number>;
  id: string;
  api_key_id: string;
  account_id: string;
  task_name: string;
  /** In lower case, for the search. */
  task_name_folded: string;
  status: string;
  model: string;
  mime_type: string;
  parent_batch_id: string | null;
  metadata: string | null;
  provider: string;
  item_count: number;
  success_count: number;
  fail_count: number;
  price: string;
  estimated_micro_usd: number;
  hold_micro_usd: number;
  actual_micro_usd: number | null;
  created_at_ms: number;
  submitted_at_ms: number;
  ended_at_ms: number | null;
  settled_at_ms: number | null;
  downloaded_at_ms: number | null;
  output_deleted_at_ms: number | null;
  outputs_expire_at_ms: number | null;
  record_deleted_at_ms: number | null;
  outputs_purged_at_ms: number | null;
  inputs_purged_at_ms: number | null;
  error: string | null;
  upstream: Generated<string>;
  waiting_since_ms: Generated<number | null>;
  waiting: Generated<string | null>;
  source: Generated<string>;
  input: Generated<string | null>;
  input_read_at_ms: Generated<number | null>;
  owner: Generated<string | null>;
}

interface BatchEventsTable {
  seq: Generated<number>;
  batch_id: string;
  from_status: string | null;
  to_status: string;
  at_ms: number;
}

export interface ItemsTable {
  id: Generated<number>;
  batch_id: string;
  position: number;
  source_index: number;
  output_index: number;
  custom_id: string;
  prompt: string;
  status: string;
  attempts: Generated<number>;
  not_before_ms: Generated<number>;
  lease_token: string | null;
  lease_worker: Generated<string | null>;
  mime_type: string | null;
  image_count: Generated<number>;
  error: string | null;
  finished_at_ms: number | null;
  model_version: string | null;
  provider: Generated<string | null>;
  failed_at: Generated<string | null>;
  switches: Generated<number>;
  maybe_paid: Generated<string>;
  seed: Generated<number | null>;
  notes: Generated<string | null>;
  usage: Generated<string | null>;
  job_id: Generated<string | null>;
  tier: Generated<string | null>;
  ratio: Generated<string | null>;
  /** 0 or 1. */
  keeps_ratio: Generated<number>;
  asked_mime_type: Generated<string | null>;
  earlier: Generated<string | null>;
  price_micro_usd: Generated<number | null>;
  hold_micro_usd: Generated<number | null>;
  client_key: Generated<string | null>;
}

export interface OutputsTable {
  item_id: number;
  batch_id: string;
  image_index: number;
  blob_key: string;
  size_bytes: number;
  sha256: string;
  crc32: number;
  mime_type: string;
  width_px: number;
  height_px: number;
  entry_name: string | null;
}

interface ReferenceImagesTable {
  batch_id: string;
  source_index: number;
  ordinal: number;
  reference_id: string | null;
  type: string | null;
  mime_type: string;
  blob_key: string | null;
  sha256: string | null;
  storage_uri: string | null;
}

interface IdempotencyKeysTable {
  api_key_id: string;
  key: string;
  request_hash: string;
  batch_id: string;
  created_at_ms: number;
}

export interface UpstreamJobsTable {
  id: string;
  batch_id: string;
  step: string;
  /** 0 or 1. */
  has_references: number;
  input: string | null;
  uploaded_at_ms: number | null;
  upstream_name: string | null;
  /** A list, as JSON. */
  ended_names: string;
  creates: number;
  sent_at_ms: number | null;
  state: string | null;
  said: string | null;
  error: string | null;
  results: number;
  created_at_ms: number;
  polled_at_ms: number | null;
  stop_asked_at_ms: Generated<number | null>;
  ended_at_ms: number | null;
  closed_at_ms: number | null;
}

interface DatabaseIdentityTable {
  id: string;
}

interface ProviderHealthTable {
  provider: string;
  model: string;
  fingerprint: string;
  state: string;
  until_ms: number | null;
  /** The rest of the record, as JSON. */
  facts: string;
}

export interface ProviderCallsTable {
  from_ms: number;
  provider: string;
  model: string;
  requests: Generated<number>;
  images: Generated<number>;
  errors: Generated<number>;
  maybe_paid_twice: Generated<number>;
  billed_micro_usd: Generated<number>;
  cost_micro_usd: Generated<number>;
  input_tokens: Generated<number>;
  output_tokens: Generated<number>;
  last_success_ms: Generated<number | null>;
}

interface FilesTable {
  seq: Generated<number>;
  api_key_id: string;
  id: string;
  display_name: string | null;
  mime_type: string;
  purpose: string | null;
  size_bytes: number;
  sha256: string;
  blob_key: string;
  created_at_ms: number;
  expires_at_ms: number;
}

interface RetentionTimeTable {
  id: number;
  seen_ms: number;
  ahead_ms: number;
  jumped_at_ms: number;
}
