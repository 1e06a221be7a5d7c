import type { Generated } from "kysely";

export interface RealtimeHoldsTable {
  id: string;
  api_key_id: string;
  account_id: string;
  amount_micro_usd: number;
  created_at_ms: number;
  worker: string | null;
}

export interface KeyedRequestsTable {
  api_key_id: string;
  key: string;
  fingerprint: string;
  realtime_id: string;
  paid_runs: number;
  sha256: string | null;
  /** As JSON. */
  error: string | null;
  expires_at_ms: number;
}

export interface LinkedImagesTable {
  seq: Generated<number>;
  id: string;
  mime_type: string;
  size_bytes: number;
  expires_at_ms: number;
}

export interface TimedSecretsTable {
  id: string;
  kind: string;
  api_key_id: string;
  batch_id: string | null;
  expires_at_ms: number;
}

export interface UploadsTable {
  id: string;
  api_key_id: string;
  /** As JSON. */
  facts: string;
  announced_bytes: number | null;
  received_bytes: number;
  /** As JSON. */
  parts: string;
  file_id: string | null;
  touched_at_ms: number;
}

export interface RequestCountsTable {
  api_key_id: string;
  second: number;
  count: number;
}

export interface UsageRecordsTable {
  seq: Generated<number>;
  realtime_id: string;
  image_index: number;
  api_key_id: string;
  account_id: string;
  model: string;
  executed_model: string;
  provider: string;
  size: string;
  ratio: string;
  mime_type: string;
  width_px: number;
  height_px: number;
  size_bytes: number;
  amount_micro_usd: number;
  created_at_ms: number;
}
