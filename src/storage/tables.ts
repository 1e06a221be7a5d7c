import type { Generated } from "kysely";
import type {
  FileRecord,
  NewItem,
  TimedSecretRecord,
  UploadRecord,
  UpstreamJobRecord,
  WorkerRecord,
} from "../domain/ports/stores.ts";
import type {
  AccountRecord,
  ApiKeyRecord,
  BatchEvent,
  BatchRecord,
  BudgetRecord,
  IdempotencyRecord,
  InteractionRecord,
  ItemRecord,
  KeyedRequestRecord,
  LedgerEntry,
  LinkedImageRecord,
  NewReference,
  OutputRecord,
  ProviderCalls,
  RealtimeHoldRecord,
  RetentionTime,
  UsageRecord,
} from "../domain/records.ts";

/** A record of which the database can give some fields. */
type Given<Row, Name extends keyof Row> = Omit<Row, Name> & { [Each in Name]: Generated<Row[Each]> };

type Numbered<Row> = Omit<Row, "seq"> & { seq: Generated<number> };

/**
 * The tables, as queries see them: as the records of the domain. The sessions turn their names into those of `foundation`,
 * values that are no numbers or texts into JSON, and all of it back.
 */
export interface Database {
  schema_migrations: { name: string; isAdditive: Generated<boolean> };
  database_identity: { id: string };
  accounts: Given<AccountRecord, "balanceMicroUsd" | "heldMicroUsd" | "isPlay" | "realAccountId">;
  api_keys: ApiKeyRecord & { sha256: string };
  ledger_entries: Numbered<LedgerEntry>;
  budgets: BudgetRecord;
  batches: BatchesTable;
  batch_events: Numbered<BatchEvent>;
  items: ItemsTable;
  outputs: OutputRecord;
  reference_images: NewReference & { batchId: string };
  idempotency_keys: IdempotencyRecord;
  upstream_jobs: Omit<UpstreamJobRecord, "input" | "error"> & {
    inputName: UpstreamJobRecord["input"];
    failure: UpstreamJobRecord["error"];
  };
  files: Numbered<FileRecord>;
  uploads: UploadRecord;
  realtime_holds: RealtimeHoldRecord;
  keyed_requests: KeyedRequestRecord;
  usage_records: Numbered<UsageRecord>;
  linked_images: Numbered<LinkedImageRecord>;
  interactions: Numbered<InteractionRecord>;
  request_counts: { apiKeyId: string; second: number; count: number };
  timed_secrets: TimedSecretRecord;
  workers: WorkerRecord & { seenAtMs: number };
  provider_calls: ProviderCalls & { fromMs: number };
  retention_time: RetentionTime & { id: number };
}

type BatchesTable = Numbered<BatchRecord> & {
  /** In lower case, for the search. */
  taskNameFolded: string;
  owner: Generated<string | null>;
  /** The number of the last start of items of any batch in which this one had a part. */
  served: Generated<number>;
};

/** The fields of an item that it does not have from the beginning. */
type Later = Exclude<keyof ItemRecord, keyof NewItem | "batchId">;

type ItemsTable = Given<ItemRecord, Later> & {
  notBeforeMs: Generated<number>;
  delayedAtMs: Generated<number>;
  leaseWorker: Generated<string | null>;
  imagesDeletedAtMs: Generated<number | null>;
};
