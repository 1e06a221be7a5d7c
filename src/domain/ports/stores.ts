// Longer than other files, because it is one list: all that the storage can be asked, and what it returns.
import type { BatchSource, BatchStatus, ItemError, ItemStatus } from "../../contract/statuses.ts";
import type {
  AccountRecord,
  ApiKeyRecord,
  BatchEvent,
  BatchRecord,
  BudgetRecord,
  GoesOn,
  IdempotencyRecord,
  InteractionRecord,
  ItemRecord,
  KeyedRequestRecord,
  LeasedItem,
  LedgerEntry,
  LinkedImageRecord,
  MaybePaid,
  NewReference,
  OutputRecord,
  ProviderCalls,
  RealtimeHoldRecord,
  ReferenceRecord,
  RetentionTime,
  SpentRecord,
  UpstreamTask,
  UsageRecord,
} from "../records.ts";
import type { JobState } from "./image-provider.ts";

/**
 * The database as the domain needs it. Repositories move rows and decide nothing. A yes or no is returned inside an
 * object, so that a forgotten `await` does not compile.
 */
export interface Stores {
  /** Committed state. Reads here never block a writer. */
  readonly read: Repositories;
  /** Reads that all see the same moment. `now` rejects after the end. */
  snapshot<T>(work: (now: Repositories) => Promise<T>): Promise<T>;
  /**
   * Runs the work as one transaction, which is durable when this resolves. A throw undoes all of it. Inside, nothing
   * is awaited but calls of `tx`, one at a time: no network, no files, no `read` or `write` of the stores. Work that
   * waits for anything else is undone. `tx` rejects after the end. The work may run again from its start, after all
   * that it did was undone: it changes nothing outside of `tx`. Rejects with `StorageUnavailable` when the database
   * cannot store anything now.
   */
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
}

export interface Repositories {
  accounts: AccountRepository;
  keys: KeyRepository;
  ledger: LedgerRepository;
  budgets: BudgetRepository;
  batches: BatchRepository;
  items: ItemRepository;
  outputs: OutputRepository;
  references: ReferenceRepository;
  idempotency: IdempotencyRepository;
  upstreamJobs: UpstreamJobRepository;
  realtimeHolds: RealtimeHoldRepository;
  keyedRequests: KeyedRequestRepository;
  usage: UsageRepository;
  retentionTime: RetentionTimeRepository;
  providerCalls: ProviderCallsRepository;
  files: FileRepository;
  linkedImages: LinkedImageRepository;
  interactions: InteractionRepository;
  timedSecrets: TimedSecretRepository;
  uploads: UploadRepository;
  requestCounts: RequestCountRepository;
  workers: WorkerRepository;
  audit: AuditRepository;
  /** Writes existing values again: a transaction that writes nothing would not touch the disk. */
  touch(): Promise<void>;
}

interface AccountRepository {
  /** `isPlay` defaults to false. */
  insert(account: { id: string; name: string; createdAtMs: number; isPlay?: boolean }): Promise<void>;
  setRealAccount(id: string, realAccountId: string): Promise<void>;
  byId(id: string): Promise<AccountRecord | null>;
  byName(name: string): Promise<AccountRecord | null>;
  list(): Promise<AccountRecord[]>;
  /** Adds to balance and held amount, unless the balance is not enough and would fall below zero: then nothing changes. */
  change(
    id: string,
    change: { balanceMicroUsd: number; heldMicroUsd: number },
  ): Promise<{ isEnough: boolean }>;
}

interface KeyRepository {
  insert(key: ApiKeyRecord & { sha256: string }): Promise<void>;
  bySha256(sha256: string): Promise<ApiKeyRecord | null>;
  byId(id: string): Promise<ApiKeyRecord | null>;
  list(): Promise<ApiKeyRecord[]>;
  setDisabled(id: string, atMs: number): Promise<void>;
  setEnabled(id: string, atMs: number): Promise<void>;
}

interface LedgerRepository {
  /** `isNew` is false when an entry with this request id exists already; then nothing changes. */
  append(entry: Omit<LedgerEntry, "seq">): Promise<{ isNew: boolean }>;
  byRequestId(requestId: string): Promise<LedgerEntry | null>;
  list(filter: { accountId?: string; batchIds?: readonly string[] }): Promise<LedgerEntry[]>;
  /** The newest first: those before the entry `beforeSeq` (default: all), without the first `offset` (default 0) of them. */
  page(filter: {
    accountIds: readonly string[];
    beforeSeq?: number | undefined;
    offset?: number;
    limit: number;
  }): Promise<LedgerEntry[]>;
  /** The sum of the balance changes of an account behind the entry `seq`. */
  changeAfter(accountId: string, seq: number): Promise<number>;
}

interface BudgetRepository {
  /** In a transaction, no other one reads them until it ends: what they allow is spent by one at a time. */
  list(): Promise<BudgetRecord[]>;
  put(budget: BudgetRecord): Promise<void>;
  remove(scope: string): Promise<void>;
  /** What was captured and charged in real money in a time. */
  spent(time: { fromMs: number; beforeMs: number }): Promise<SpentRecord[]>;
  /** What open holds of batches and real-time requests keep of real money now. */
  held(): Promise<SpentRecord[]>;
}

/**
 * The repositories inside a transaction. Other transactions may be at work at the same time: whatever a decision rests on
 * is locked before it is read. Locks are taken in the order of `LockedRow`, else two transactions wait for each other.
 */
export interface Transaction extends Omit<Repositories, "batches"> {
  batches: Omit<BatchRepository, "byId"> & {
    /** Locks the batch and reads it. */
    locked(id: string): Promise<BatchRecord | null>;
  };
  /** Keeps other transactions from changing the rows until this one ends. */
  lock(row: LockedRow, ...ids: string[]): Promise<void>;
}

/** Rows that can be locked, in the order in which to do it. A batch comes before its items. */
type LockedRow = "key" | "batch" | "account";

interface OutputRepository {
  insertMany(outputs: readonly OutputRecord[]): Promise<void>;
  /** In request order, then by image index. */
  ofBatch(batchId: string): Promise<OutputRecord[]>;
  ofItem(itemId: number): Promise<OutputRecord[]>;
  /** By image index. */
  ofItems(itemIds: readonly number[]): Promise<OutputRecord[]>;
  removeOfItem(itemId: number): Promise<void>;
  setEntryNames(names: readonly { itemId: number; imageIndex: number; entryName: string }[]): Promise<void>;
}

interface ReferenceRepository {
  insertMany(batchId: string, references: readonly NewReference[]): Promise<void>;
  /** The mask of an item of the request (`sourceIndex`), if it has one, and its references in their order. */
  ofSource(batchId: string, sourceIndex: number): Promise<ReferenceRecord[]>;
  /** The references of several items of the request, without masks. */
  ofSources(batchId: string, sourceIndexes: readonly number[]): Promise<NewReference[]>;
  /** How many references each item of the request (`sourceIndex`) has; those without any are left out. */
  countBySource(batchId: string): Promise<ReadonlyMap<number, number>>;
}

interface IdempotencyRepository {
  find(apiKeyId: string, key: string): Promise<IdempotencyRecord | null>;
  /**
   * `isNew` is false when the key has made another batch already; then nothing changes. Waits for another transaction that
   * inserts the same key.
   */
  insert(record: IdempotencyRecord): Promise<{ isNew: boolean }>;
  /** Inserts the record in the place of the one that the key has, if any. */
  replace(record: IdempotencyRecord): Promise<void>;
  /** Removes the keys of batches whose records were deleted before the time. Returns how many. */
  removeOfRecordsDeletedBefore(ms: number): Promise<number>;
}

interface RealtimeHoldRepository {
  insert(hold: RealtimeHoldRecord): Promise<void>;
  /** Removes the record and returns it; null when there is none. */
  remove(id: string): Promise<RealtimeHoldRecord | null>;
  /** Oldest first. */
  list(): Promise<RealtimeHoldRecord[]>;
  /** How many holds of a key belong to processes that are alive. */
  countOpen(apiKeyId: string): Promise<number>;
  /** Whether there is the hold, of a process that is alive. */
  isOpen(id: string): Promise<{ isOpen: boolean }>;
  /** The holds whose worker is dead. */
  abandoned(): Promise<RealtimeHoldRecord[]>;
}

interface KeyedRequestRepository {
  find(apiKeyId: string, key: string): Promise<KeyedRequestRecord | null>;
  /** Inserts the record, or replaces the one with the same key. */
  put(record: KeyedRequestRecord): Promise<void>;
  /** Does nothing when another run has the key by now. */
  remove(record: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "realtimeId">): Promise<void>;
  /** Records that expire by `nowMs`, the earliest first. */
  due(nowMs: number, limit: number): Promise<KeyedRequestRecord[]>;
  /** The record of the run with this id; null without one. Reads all records. */
  ofRun(realtimeId: string): Promise<KeyedRequestRecord | null>;
  /** Records whose answer has a body. */
  answered(): Promise<KeyedRequestRecord[]>;
}

interface LinkedImageRepository {
  insert(image: LinkedImageRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<LinkedImageRecord | null>;
  /** Images that expire by `nowMs`, in the order in which they were made, after the image with the number `afterSeq`. */
  due(
    nowMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<(LinkedImageRecord & { seq: number })[]>;
  remove(id: string): Promise<void>;
}

interface InteractionRepository {
  insert(interaction: InteractionRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<InteractionRecord | null>;
  /** Ends an interaction that is in progress; changes nothing when it has ended, or is deleted. What is left out stays as it is. */
  end(
    id: string,
    change: Pick<InteractionRecord, "status"> &
      Partial<Pick<InteractionRecord, "input" | "answer" | "pictures">>,
  ): Promise<{ isChanged: boolean }>;
  /** Interactions that expire by `nowMs`, in the order in which they were made, after the one with the number `afterSeq`. */
  due(
    nowMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<(InteractionRecord & { seq: number })[]>;
  remove(id: string): Promise<void>;
}

/** The images of a model that a key paid for on a day, from one of its accounts. */
interface DayUsage {
  accountId: string;
  /** The beginning of the day, in UTC. */
  dayMs: number;
  /** The requested model. */
  model: string;
  imageCount: number;
  amountMicroUsd: number;
}

interface UsageRepository {
  insertMany(records: readonly UsageRecord[]): Promise<void>;
  /** In the order in which they were written. */
  list(): Promise<UsageRecord[]>;
  /**
   * The images that a key paid for, by day (UTC) and model, oldest first: images of batches on the day when they were settled, and of
   * real-time requests. `accountIds`: those that have paid for the key.
   */
  byDay(filter: {
    apiKeyId: string;
    accountIds: readonly string[];
    fromMs: number;
    beforeMs: number;
  }): Promise<DayUsage[]>;
  count(): Promise<number>;
}

interface ProviderCallsRepository {
  /** Adds to the sums of the stretch of time that begins at `fromMs`. */
  add(fromMs: number, calls: ProviderCalls): Promise<void>;
  /** The sums of each day (UTC), provider and model, of stretches that begin in the time. Oldest first. */
  list(time: { fromMs?: number; beforeMs?: number }): Promise<(ProviderCalls & { dayMs: number })[]>;
}

interface RetentionTimeRepository {
  /** Null until the retention sweep has run once. */
  read(): Promise<RetentionTime | null>;
  write(time: RetentionTime): Promise<void>;
}

/** A secret that stands for something of a key for a time, where several processes take requests. */
export interface TimedSecretRecord {
  /** SHA-256 of the secret, as lower-case hexadecimal digits: whoever reads the database learns no secret. */
  id: string;
  /** The purpose of the secret. */
  kind: "code" | "session" | "ticket";
  apiKeyId: string;
  batchId: string | null;
  expiresAtMs: number;
}

interface TimedSecretRepository {
  insert(secret: TimedSecretRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<TimedSecretRecord | null>;
  /** Removes the record and returns it, to one caller alone; null when there is none. */
  take(id: string): Promise<TimedSecretRecord | null>;
  /** The secrets of a kind and key, the first to expire first. */
  ofKey(kind: TimedSecretRecord["kind"], apiKeyId: string): Promise<TimedSecretRecord[]>;
  removeExpired(nowMs: number): Promise<void>;
}

/** An unfinished upload, where several processes take its chunks; a finished one, for a client that lost the answer. */
export interface UploadRecord {
  /** SHA-256 of the id that the client has: whoever reads the database cannot go on with the upload. */
  id: string;
  apiKeyId: string;
  facts: FileFacts;
  announcedBytes: number | null;
  /** The bytes of the chunks that are stored. */
  receivedBytes: number;
  /** The blobs with the chunks, in their order. */
  parts: readonly string[];
  /** The id of the file that it has become; null before. */
  fileId: string | null;
  touchedAtMs: number;
}

interface UploadRepository {
  insert(upload: UploadRecord): Promise<void>;
  find(id: string): Promise<UploadRecord | null>;
  /** Returns the uploads of a key that are not finished. */
  openOfKey(apiKeyId: string): Promise<UploadRecord[]>;
  /** Changes an upload that is no file yet, if it still has `receivedBytes`. */
  change(
    upload: Pick<UploadRecord, "id" | "receivedBytes">,
    change: Partial<Pick<UploadRecord, "receivedBytes" | "parts" | "fileId" | "touchedAtMs">>,
  ): Promise<{ isChanged: boolean }>;
  /** Uploads that nobody has used since the time. */
  idleSince(ms: number): Promise<UploadRecord[]>;
  remove(id: string): Promise<void>;
}

/** How many real-time requests of a key began in each second, over all processes. */
interface RequestCountRepository {
  /** Adds a request that begins in this second since 1970, and forgets those before `oldestSecond`. */
  add(apiKeyId: string, second: number, oldestSecond: number): Promise<void>;
  /** The requests from a second on, and the first second that has one. */
  since(apiKeyId: string, second: number): Promise<{ count: number; firstSecond: number | null }>;
}

/** A file that a key has uploaded to the vendor's API, or to OpenAI's. */
export interface FileRecord {
  /** Unique among the files of the key: lower-case letters, digits and dashes, 40 at most. */
  id: string;
  apiKeyId: string;
  displayName: string | null;
  /** As the caller declared it: any text. */
  mimeType: string;
  /** Its purpose, in the words of OpenAI's clients; null when the caller said nothing. */
  purpose: string | null;
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  blobKey: string;
  createdAtMs: number;
  /** From then on nobody sees the file. 0: it was deleted. The sweep removes it. */
  expiresAtMs: number;
}

interface FileRepository {
  insert(file: FileRecord): Promise<void>;
  /** Also finds a file that has expired. */
  find(apiKeyId: string, id: string): Promise<(FileRecord & { seq: number }) | null>;
  /** The files of a key that expire after `nowMs`, in this order of being stored, after the one with the number `afterSeq`. */
  page(filter: {
    apiKeyId: string;
    nowMs: number;
    order: "oldest-first" | "newest-first";
    afterSeq?: number;
    purpose?: string;
    limit: number;
  }): Promise<(FileRecord & { seq: number })[]>;
  /** The bytes of the files of a key that expire after `nowMs`. */
  bytesOf(apiKeyId: string, nowMs: number): Promise<number>;
  /** Files that expire by `nowMs`, in the order in which they were stored, behind the one with the number `afterSeq`. */
  due(nowMs: number, page: { afterSeq: number; limit: number }): Promise<(FileRecord & { seq: number })[]>;
  setExpiry(blobKey: string, expiresAtMs: number): Promise<void>;
  remove(blobKey: string): Promise<void>;
  blobKeys(): Promise<string[]>;
}

/** The caller's description of a file. */
export interface FileFacts {
  /** Null: the service makes one. */
  id: string | null;
  displayName: string | null;
  mimeType: string;
  /** Default: the caller said nothing. */
  purpose?: string;
  /** How long the file is kept, in ms. */
  keptMs?: number;
}

/** `api`: takes requests. `worker`: makes images. `all`: both. */
type WorkerRole = "all" | "api" | "worker";

/**
 * A process that takes part in the work on a database. It counts as alive as long as its record exists: whatever names a
 * worker without a record is free.
 */
export interface WorkerRecord {
  id: string;
  role: WorkerRole;
  /** The version of the program. */
  version: string;
  /** The names of the providers with which it makes the images of batches. */
  providers: readonly string[];
  /** Whether somebody has asked it to begin no work. */
  isPaused: boolean;
}

/** Times are those of the database's clock, which all processes share. */
interface WorkerRepository {
  /** The record counts as seen now. */
  insert(worker: WorkerRecord): Promise<void>;
  /**
   * Notes that the worker was seen now. `isAlive` is false when it has no record any more. `wasAway`: it was seen for the
   * last time more than `pauseMs` ago, or later than now.
   */
  heartbeat(id: string, pauseMs: number): Promise<{ isAlive: boolean; wasAway: boolean }>;
  /** Whether the worker has a record. */
  isAlive(id: string): Promise<{ isAlive: boolean }>;
  list(): Promise<WorkerRecord[]>;
  /** How long ago a worker that makes images was seen last; null when there is none. */
  silenceMs(): Promise<number | null>;
  /** Removes the workers that were seen for the last time more than `termMs` before this one. Returns how many. */
  removeSilent(id: string, termMs: number): Promise<number>;
  remove(id: string): Promise<void>;
  removeAll(): Promise<void>;
  /** Asks all workers to begin no work, or to begin work again. */
  setPaused(isPaused: boolean): Promise<void>;
}

export interface BatchPage {
  apiKeyId: string;
  status?: BatchStatus;
  source?: BatchSource;
  /** Anywhere in the name, upper and lower case alike. */
  taskName?: string;
  isDownloaded?: boolean;
  /** Without retries of batches that the same filter finds. */
  hidesRetries?: boolean;
  /** Created at or after, in ms. */
  fromMs?: number;
  /** Created before, in ms. */
  beforeMs?: number;
  /** Only batches that come after this batch in the list. */
  after?: { createdAtMs: number; seq: number };
  /** Without the first `offset` (default 0) of them. */
  offset?: number;
  limit: number;
}

/** The batches of a key for a provider that go on in the same way. */
interface BatchQueue {
  provider: string;
  apiKeyId: string;
  goesOn: GoesOn;
}

/** A batch that has begun, as far as it takes to decide who works on it. */
interface BegunBatch {
  id: string;
  provider: string;
  status: BatchStatus;
  owner: string | null;
  /** Whether each of its items has an outcome. */
  isMade: boolean;
}

/** What is added to the counts of a batch. */
interface CountChange {
  id: string;
  success: number;
  fail: number;
}

interface BatchRepository {
  insert(batch: BatchRecord): Promise<void>;
  byId(id: string): Promise<BatchRecord | null>;
  /** Where a batch stands in the lists; null when there is none. */
  placeOf(id: string): Promise<{ createdAtMs: number; seq: number } | null>;
  /**
   * The batches of a key whose records are not deleted, newest first; of equal times the later inserted first. Not inside
   * a transaction: a long search lets others work meanwhile.
   */
  page(filter: BatchPage): Promise<(BatchRecord & { seq: number })[]>;
  /**
   * Ended batches whose outputs are due for deletion: they have expired, or the batch is `output_deleted` already. In the
   * order in which batches were made, behind the one with the number `afterSeq`.
   */
  outputsDue(
    nowMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<{ id: string; seq: number }[]>;
  /** Batches that ended before the time and whose inputs still exist, in the same order. */
  inputsDue(
    endedBeforeMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<{ id: string; seq: number }[]>;
  /** Batches that ended before the time and whose outputs still exist, in the same order. */
  keptSince(
    endedBeforeMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<{ id: string; seq: number }[]>;
  /** How many batches of a key and source have not ended. */
  countUnended(apiKeyId: string, source: BatchSource): Promise<number>;
  /** Oldest first. */
  withStatus(statuses: readonly BatchStatus[]): Promise<BatchRecord[]>;
  /** The newest retries, at most `limit` of each batch of a key, whose records are not deleted, oldest first. */
  retriesOf(apiKeyId: string, parentIds: readonly string[], limit: number): Promise<BatchRecord[]>;
  /** The newest batches, at most `limit`, whose records are not deleted. */
  latest(limit: number): Promise<BatchRecord[]>;
  /** The queues with a queued or running batch that goes on so. That of the key comes first which was served least recently. */
  queues(goesOn: GoesOn): Promise<BatchQueue[]>;
  /**
   * The batches of a queue with an item to start at `nowMs`, and queued ones with any, the one first that was served least
   * recently. Only the first batches take part: as many as may be running at once. The others are queued behind them.
   */
  nextOf(queue: BatchQueue, nowMs: number): Promise<string[]>;
  /** Records that items of a batch are being started: the batch and its key come last then. */
  serve(id: string): Promise<void>;
  /** The first batch of each API key that goes on so and of which the input is to be read. */
  unread(goesOn: GoesOn): Promise<{ id: string; provider: string }[]>;
  /**
   * The batches that have begun, not ended, and go on so, oldest first. `owner`: the live worker that owns the batch; null
   * without one.
   */
  begun(goesOn: GoesOn): Promise<BegunBatch[]>;
  /** Stops the batches that the commands of an earlier process named. */
  stopNamed(): Promise<void>;
  /** Changes how a batch goes on, unless it is to be cancelled. */
  setGoesOn(id: string, goesOn: GoesOn): Promise<void>;
  /** The batches that are to be cancelled and have not ended. */
  cancelsAsked(): Promise<{ id: string }[]>;
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
  /** Batches that go on so and whose images are not made yet, of any provider but these. */
  unmadeByOthers(providers: readonly string[], goesOn: GoesOn): Promise<BatchRecord[]>;
  /** Batches that ended after the time and have one of these statuses. */
  endedSince(ms: number, statuses: readonly BatchStatus[]): Promise<{ id: string }[]>;
  /** Items without an outcome, of all batches that are at work. */
  pendingItemCount(): Promise<number>;
  /** How many unfinished batches have each status; a status without batches is left out. */
  unfinishedByStatus(): Promise<Partial<Record<BatchStatus, number>>>;
  /** Changes the status if it still is `from`. Only the lifecycle calls this. */
  changeStatus(id: string, from: BatchStatus, to: BatchStatus): Promise<{ isChanged: boolean }>;
  /** Changes other columns. */
  update(id: string, change: Partial<Omit<BatchRecord, "id" | "status">>): Promise<void>;
  /** Changes the counts of batches, each of which comes once. A success ends the wait of a batch for its providers. */
  addCounts(...changes: CountChange[]): Promise<void>;
  appendEvent(event: BatchEvent): Promise<void>;
  /** The events of a batch, the oldest first. */
  events(id: string): Promise<BatchEvent[]>;
  all(): Promise<BatchRecord[]>;
}

/**
 * An item as it is first written. With `failed` it has failed before anything was asked. `notBeforeMs`: when it may be tried
 * first; default: at once. `delayedAtMs`: when that was decided. While the clock shows an earlier time, it was ahead then, and
 * the item may be tried.
 */
export type NewItem = Pick<
  ItemRecord,
  | "position"
  | "sourceIndex"
  | "outputIndex"
  | "customId"
  | "prompt"
  | "options"
  | "earlier"
  | "verbatim"
  | "priceMicroUsd"
  | "holdMicroUsd"
  | "clientKey"
> & {
  failed?: { error: ItemError; atMs: number };
  notBeforeMs?: number;
  delayedAtMs?: number;
};

/** The cost of all items of a batch, in micro-dollars. */
interface ItemSums {
  /** The holds of all items. */
  holdMicroUsd: number;
  /** The prices of all items. */
  priceMicroUsd: number;
  /** The prices of the successful items. */
  earnedMicroUsd: number;
}

interface ItemPage {
  status?: ItemStatus;
  afterPosition: number;
  offset?: number;
  limit: number;
}

/** The fields of an item that lists show. To read all of them takes twice as long. */
export type ListedItem = Pick<
  ItemRecord,
  | "id"
  | "position"
  | "sourceIndex"
  | "customId"
  | "prompt"
  | "status"
  | "mimeType"
  | "imageCount"
  | "error"
  | "finishedAtMs"
  | "modelVersion"
  | "provider"
  | "maybePaid"
  | "seed"
  | "notes"
  | "usage"
  | "priceMicroUsd"
  | "options"
>;

interface ItemClaim {
  /** Together with the item it proves who holds the lease. */
  token: string;
  /** Who claims. */
  worker: string;
  nowMs: number;
  /** The provider that is about to be asked. */
  provider: string;
  /** The upstream behind it: type and address. An item with a task at another one is not claimed. */
  upstream: string;
  /** Its images cost money: an item that may be paid already is marked as paid twice. */
  isPaid: boolean;
  /**
   * `not-failed-here`: items whose last failure was at another provider, or that have none. `failed-elsewhere`: only
   * items whose last failure was at another provider.
   */
  which: "any" | "not-failed-here" | "failed-elsewhere";
  /** An item that has changed the provider so often stays with the last one. */
  mostSwitches: number;
  /** The most items. */
  limit: number;
}

/** A lease that a worker holds on an item. */
interface ItemLease {
  batchId: string;
  itemId: number;
  leaseToken: string;
}

interface ItemRepository {
  insertMany(batchId: string, items: readonly NewItem[]): Promise<void>;
  byCustomId(batchId: string, customId: string): Promise<ItemRecord | null>;
  /** In request order, those after `afterPosition` (-1 for all), without the first `offset` (default 0) of them. */
  page(batchId: string, filter: ItemPage): Promise<ItemRecord[]>;
  /** The same, without the fields that no list shows. */
  listed(batchId: string, filter: ItemPage): Promise<ListedItem[]>;
  /**
   * The newest batch that makes an item of a batch again, by custom id: one of the same key and origin that came later, where
   * the item has not failed. Items without such a batch are left out.
   */
  retriesOf(
    batch: Pick<BatchRecord, "id" | "apiKeyId" | "parentBatchId">,
    customIds: readonly string[],
  ): Promise<ReadonlyMap<string, string>>;
  countByStatus(batchId: string): Promise<Record<ItemStatus, number>>;
  /** How many items are being made now, of all batches. */
  countLeased(): Promise<number>;
  /** The sums over the items of a batch. */
  sums(batchId: string): Promise<ItemSums>;
  /**
   * Leases the first pending items without a lease whose time has come, and marks them as sent to the provider; none of a
   * batch that is not running. Items at which an upstream has failed come later, and those that may be paid already last.
   */
  claim(batchId: string, claim: ItemClaim): Promise<ItemRecord[]>;
  /** The items, of all batches by default, with a lease of a worker that is not alive. The leases of jobs do not count. */
  abandoned(batchId?: string): Promise<ItemRecord[]>;
  /** The leases that a worker holds on items, without those of jobs. */
  leasesOf(workerId: string): Promise<ItemLease[]>;
  /** Returns the first time after `afterMs` from which on a pending item without a lease may be tried; null without one. */
  nextDueMs(afterMs: number): Promise<number | null>;
  /**
   * Writes the outcomes of leased items whose lease is still held and that are pending. Returns these. An item must not
   * come twice under one lease.
   */
  finish(items: readonly LeasedItem[]): Promise<LeasedItem[]>;
  /** Gives a leased item back to be tried again from `notBeforeMs` on, see `NewItem`. `attempts` is the number of failed tries. */
  giveBack(
    id: number,
    leaseToken: string,
    change: { notBeforeMs: number; delayedAtMs?: number } & Pick<
      ItemRecord,
      "attempts" | "failedAt" | "maybePaid" | "usage"
    >,
  ): Promise<{ isOurs: boolean }>;
  /** Stores the task that an upstream has begun for a leased item. Only that upstream gets the item from then on. */
  keepTask(id: number, leaseToken: string, task: UpstreamTask): Promise<{ isOurs: boolean }>;
  /** Gives a job the next pending items of the batch without one, at most `limit`. Returns how many. */
  assignToJob(batchId: string, job: { jobId: string; provider: string; limit: number }): Promise<number>;
  /** Takes pending items from their job again. */
  releaseFromJob(ids: readonly number[]): Promise<void>;
  /** The pending items of a job, in request order. */
  ofJob(jobId: string): Promise<ItemRecord[]>;
  /** Leases the pending items of a job, also those with a lease. Returns them in request order. */
  leaseJob(jobId: string, token: string): Promise<ItemRecord[]>;
  /** Sets the mark of the pending items of a job, or only of those that have the mark `before`. */
  markJob(jobId: string, maybePaid: MaybePaid, before?: MaybePaid): Promise<void>;
  /** Returns how many pending items of the batch belong to no job. */
  countWithoutJob(batchId: string): Promise<number>;
  /** Lets the pending items of a batch change the provider again: they have waited. */
  resetSwitches(batchId: string): Promise<void>;
  /** Notes that the images of an item were deleted on purpose. */
  markDeleted(id: number, nowMs: number): Promise<void>;
  /** Turns a successful item into a failure. */
  fail(id: number, error: NonNullable<ItemRecord["error"]>): Promise<void>;
  /**
   * Fails every pending item of the batch, leased or not. With `besides`, those stay that another worker has leased which is
   * alive. With `isMaybePaid`, only those of which a request has left without a known outcome. Returns how many failed.
   */
  failPending(
    batchId: string,
    error: NonNullable<ItemRecord["error"]>,
    nowMs: number,
    which?: { besides?: string; isMaybePaid?: true },
  ): Promise<number>;
  /** Whether another worker that is alive has a lease on an item of the batch. The leases of jobs do not count. */
  areLeasedBesides(batchId: string, workerId: string): Promise<boolean>;
  /** Drops those leases that are still held. Returns how many. */
  dropLeases(leases: readonly ItemLease[]): Promise<number>;
}

/**
 * How far a job upstream has come. Each step is stored before the next call is sent, and can be repeated.
 *
 * - `new`: it has items. Their input is uploaded next.
 * - `uploaded`: the upstream has its input. It is created next.
 * - `sent`: a request to create it has left, and no answer is known. It is looked for.
 * - `running`: the upstream's name of it is known. It is polled.
 * - `ended`: the upstream has ended it. Its results are fetched next.
 * - `fetched`: its results are recorded. After a lost answer, another job may have results that it does not have.
 * - `done`: none of its items is pending. Its files at the upstream are removed next.
 * - `closed`: nothing is left to do.
 */
export type JobStep = "new" | "uploaded" | "sent" | "running" | "ended" | "fetched" | "done" | "closed";

/** A job that an upstream works on for a part of a batch. */
export interface UpstreamJobRecord {
  /** Chosen by us; the upstream keeps it with the job. */
  id: string;
  batchId: string;
  step: JobStep;
  /** Its items have reference images. */
  hasReferences: boolean;
  /** The upstream's name of the uploaded input. */
  input: string | null;
  uploadedAtMs: number | null;
  /** The upstream's own name of the job that is at work; null while none is known. */
  upstreamName: string | null;
  /** The upstream's names of jobs that have ended. Another one may have been created after a lost answer. */
  endedNames: readonly string[];
  /** How many requests to create the job may have made one. */
  creates: number;
  /** How many of the created jobs the upstream ended before they began: they cost nothing. */
  refusals: number;
  /** When the upstream ended the first of these jobs; null when it ended none. */
  refusedSinceMs: number | null;
  /** When the last request to create a job was sent; null when the upstream answered each that it takes nothing now. */
  sentAtMs: number | null;
  state: JobState | null;
  /** The last words of the upstream about the job. */
  said: string | null;
  /** Why it made no image for items without a result; null while there is no such reason. */
  error: string | null;
  /** How many of its items the upstream has returned a result for. */
  results: number;
  createdAtMs: number;
  /** How often in a row what is to be done next has failed. */
  failures: number;
  /** When the upstream was last polled, in this process; null when it was not. */
  polledAtMs: number | null;
  /** When the upstream first said that it does not know the job; null while it knows the job. */
  missingSinceMs: number | null;
  /** Why results are missing that the upstream has; null when none are missing. */
  gone: string | null;
  /** When the upstream was first asked to stop the job of this name; null when it was not. */
  stopAskedAtMs: number | null;
  /** It has been told so. */
  isStopTold: boolean;
  endedAtMs: number | null;
  closedAtMs: number | null;
}

interface UpstreamJobRepository {
  /** A random id of this database. It distinguishes its jobs from those of others that use the same upstream. */
  databaseId(): Promise<string>;
  insert(job: UpstreamJobRecord): Promise<void>;
  byId(id: string): Promise<UpstreamJobRecord | null>;
  update(id: string, change: Partial<Omit<UpstreamJobRecord, "id" | "batchId">>): Promise<void>;
  /** Oldest first. */
  ofBatch(batchId: string): Promise<UpstreamJobRecord[]>;
  /** Jobs that are not closed although their items have ended, or no item of their batch is made any more. Oldest first. */
  toClose(): Promise<UpstreamJobRecord[]>;
  /** How many jobs are at work for each provider. */
  atWork(): Promise<{ provider: string; count: number }[]>;
}

/** Rows that break a rule which must always hold, each with its problems in words. */
type BrokenRows = Promise<{ id: string; problems: string[] }[]>;

/** What a check of the whole database reads. */
interface AuditRepository {
  /** How many accounts and batches there are, and the number of the newest batch; 0 without any. Large tables are read in windows of these numbers. */
  extent(): Promise<{ accounts: number; batches: number; lastSeq: number }>;
  /** Accounts, by their names, that differ from their entries and from what is held for unfinished work. */
  accounts(): BrokenRows;
  /** Real-time requests whose entries, holds and usage records differ. */
  requests(): BrokenRows;
  /** Batches of a window that differ from their entries, items and events. `steps` are the allowed ones of a history, as `queued>running`. */
  batches(steps: readonly string[], window: SeqWindow): BrokenRows;
  /** The successful items of a window that have fewer outputs than images, although nobody has deleted them. */
  lostOutputs(window: SeqWindow): Promise<{ batchId: string; customId: string; lost: number }[]>;
  /** The outputs of the batches of a window that are not `output_deleted`, in no order. */
  keptOutputs(window: SeqWindow): Promise<OutputRecord[]>;
}

interface SeqWindow {
  afterSeq: number;
  toSeq: number;
}
