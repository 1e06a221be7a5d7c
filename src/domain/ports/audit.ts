import type { BatchRecord, LedgerEntry, OutputRecord } from "../records.ts";

/** What a check of the whole database reads. */
export interface AuditRepository {
  /** For each account with entries or batches: the sums of its entries, its batches, and the holds of those that are not settled. */
  accounts(): Promise<
    {
      accountId: string;
      balanceMicroUsd: number;
      heldMicroUsd: number;
      batches: number;
      openMicroUsd: number;
    }[]
  >;
  /** The number of the newest batch; 0 without any. Large tables are read in windows of these numbers. */
  lastSeq(): Promise<number>;
  /** The batches of a window that may be wrong; all others are right. `steps` are the allowed ones of a history, as `queued>running`. */
  doubtful(steps: readonly string[], window: SeqWindow): Promise<BatchRecord[]>;
  /** The entries of real-time requests. */
  requestEntries(accountId: string): Promise<LedgerEntry[]>;
  /** The successful items of a window that have fewer outputs than images, although nobody has deleted them. */
  lostOutputs(window: SeqWindow): Promise<{ batchId: string; customId: string; lost: number }[]>;
  /** The outputs of the batches of a window that are not `output_deleted`, in no order. */
  keptOutputs(window: SeqWindow): Promise<OutputRecord[]>;
}

interface SeqWindow {
  afterSeq: number;
  toSeq: number;
}
