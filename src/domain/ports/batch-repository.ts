import type { BatchSource, BatchStatus } from "../../contract/statuses.ts";
import type { BatchEvent, BatchRecord } from "../records.ts";

export interface BatchPage {
  apiKeyId: string;
  status?: BatchStatus;
  source?: BatchSource;
  /** Anywhere in the name, upper and lower case alike. */
  taskName?: string;
  isDownloaded?: boolean;
  /** Created at or after, in ms. */
  fromMs?: number;
  /** Created before, in ms. */
  beforeMs?: number;
  /** Those that come after this one in the list. */
  after?: { createdAtMs: number; seq: number };
  /** Without the first `offset` (default 0) of them. */
  offset?: number;
  limit: number;
}

/** In the order in which batches were made, behind the one with this number. */
export interface SweepPage {
  afterSeq: number;
  limit: number;
}

/** The batches of a key for a provider. */
export interface BatchQueue {
  provider: string;
  apiKeyId: string;
}

/** A batch that has begun, as far as it takes to decide who works on it. */
export interface BegunBatch {
  id: string;
  provider: string;
  status: BatchStatus;
  owner: string | null;
  /** Whether each of its items has an outcome. */
  isMade: boolean;
}

/** What is added to the counts of a batch. */
export interface CountChange {
  id: string;
  success: number;
  fail: number;
}

export interface BatchRepository {
  insert(batch: BatchRecord): Promise<void>;
  byId(id: string): Promise<BatchRecord | null>;
  /** Where a batch stands in the lists; null when there is none. */
  placeOf(id: string): Promise<{ createdAtMs: number; seq: number } | null>;
  /**
   * The batches of a key whose records are not deleted, newest first; of equal times the later inserted first. Not inside
   * a transaction: a long search lets others work meanwhile.
   */
  page(filter: BatchPage): Promise<(BatchRecord & { seq: number })[]>;
  /** Ended batches whose outputs are due for deletion: they have expired, or the batch is `output_deleted` already. */
  outputsDue(nowMs: number, page: SweepPage): Promise<{ id: string; seq: number }[]>;
  /** Batches that ended before the time and whose inputs still exist. */
  inputsDue(endedBeforeMs: number, page: SweepPage): Promise<{ id: string; seq: number }[]>;
  /** How many batches of a key and source have not ended. */
  countUnended(apiKeyId: string, source: BatchSource): Promise<number>;
  /** Oldest first. */
  withStatus(statuses: readonly BatchStatus[]): Promise<BatchRecord[]>;
  /** The newest batches, at most `limit`, whose records are not deleted. */
  latest(limit: number): Promise<BatchRecord[]>;
  /** The queues with a queued or running batch. That of the key comes first which was served least recently. */
  queues(): Promise<BatchQueue[]>;
  /**
   * The batches of a queue with an item to start at `nowMs`, and queued ones with any, the one first that was served least
   * recently. Only the first batches take part: as many as may be running at once. The others are queued behind them.
   */
  nextOf(queue: BatchQueue, nowMs: number): Promise<string[]>;
  /** Records that items of a batch are being started: the batch and its key come last then. */
  serve(id: string): Promise<void>;
  /** The first batch of each API key of which the input is to be read. */
  unread(): Promise<{ id: string; provider: string }[]>;
  /** The batches that have begun and not ended, oldest first. `owner`: the live worker that owns the batch; null without one. */
  begun(): Promise<BegunBatch[]>;
  /** Ends the wait for providers of every batch that is at work. While no worker ran, nothing could end it. */
  endWaits(): Promise<void>;
  /** Makes a worker the owner of a batch, unless another one that is alive owns it. */
  becomeOwner(id: string, workerId: string): Promise<{ isOurs: boolean }>;
  /** Makes a worker the owner of a batch, whoever owns it now. */
  setOwner(id: string, workerId: string): Promise<void>;
  /** Returns the owner of a batch, even when it is not alive; null when there is none. */
  ownerOf(id: string): Promise<string | null>;
  /** How many open batches of the same queue came before this one, at most `limit`. */
  openBefore(batch: BatchQueue & { id: string }, limit: number): Promise<number>;
  /** Batches whose images are not made yet, of any provider but these. */
  unmadeByOthers(providers: readonly string[]): Promise<BatchRecord[]>;
  /** Batches that ended after the time and have one of these statuses. */
  endedSince(ms: number, statuses: readonly BatchStatus[]): Promise<{ id: string }[]>;
  /** Items without an outcome, of all batches that are at work. */
  pendingItemCount(): Promise<number>;
  /** How many batches have each status; a status without batches is left out. */
  countByStatus(): Promise<Partial<Record<BatchStatus, number>>>;
  /** Changes the status if it still is `from`. Only the lifecycle calls this. */
  changeStatus(id: string, from: BatchStatus, to: BatchStatus): Promise<{ isChanged: boolean }>;
  /** Changes other columns. */
  update(id: string, change: Partial<Omit<BatchRecord, "id" | "status">>): Promise<void>;
  /** Changes the counts of batches, each of which comes once. A success ends the wait of a batch for its providers. */
  addCounts(...changes: CountChange[]): Promise<void>;
  appendEvent(event: BatchEvent): Promise<void>;
  /** The events of some batches, the oldest first. */
  events(...ids: string[]): Promise<BatchEvent[]>;
  all(): Promise<BatchRecord[]>;
}
