import PQueue from "p-queue";
import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { inputsPrefix } from "../domain/batches/create-batch.ts";
import { failBatch } from "../domain/batches/end-batch.ts";
import { admitBatches, hasItems } from "../domain/batches/lifecycle.ts";
import { takeIn } from "../domain/jobs/take-in.ts";
import type { BatchQueue } from "../domain/ports/batches.ts";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import type { BatchRecord } from "../domain/records.ts";
import { backoffMs } from "../kernel/backoff.ts";
import { createYield } from "../kernel/yield.ts";
import { endOf } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";

const QUEUES_AT_ONCE = 20;

/** Takes batches from their queues, one query of a queue at a time. */
export class Admission {
  readonly #deps: WorkerDeps;
  readonly #onTaken: (batch: BatchRecord) => void;
  readonly #isActive: (batchId: string) => boolean;
  /** Queues that are being read, and whether to read them once more afterwards. */
  readonly #reading = new Map<string, { again: boolean }>();
  /** Queues that were full when they were last read. */
  readonly #full = new Set<string>();

  /**
   * `onTaken` gets each batch that was taken, in the order in which they came. `isActive`: it has got the batch, and still
   * has to do with it.
   */
  constructor(
    deps: WorkerDeps,
    { onTaken, isActive }: { onTaken(batch: BatchRecord): void; isActive(batchId: string): boolean },
  ) {
    this.#deps = deps;
    this.#onTaken = onTaken;
    this.#isActive = isActive;
  }

  /**
   * Whether the queue is full for certain. The end of any active batch then makes room. It is
   * not certain beside other processes, which may have ended some, nor while it is being read, which may have missed the newest batch.
   */
  isFull(queue: BatchQueue): boolean {
    const name = nameOf(queue);
    return this.#deps.presence.isAlone && this.#full.has(name) && !this.#reading.has(name);
  }

  /** Takes the next batches of a queue, as many as it may have active. */
  async takeNext({ provider, apiKeyId }: BatchQueue): Promise<void> {
    const name = nameOf({ provider, apiKeyId });
    const current = this.#reading.get(name);
    if (current) {
      current.again = true;
      return;
    }
    const { stores, clock, presence, feed } = this.#deps;
    const reading = { again: true };
    this.#reading.set(name, reading);
    try {
      while (reading.again) {
        reading.again = false;
        const nowMs = () => clock.nowMs();
        const worker = { id: presence.id, isActive: this.#isActive };
        const { admitted, isFull } = await admitBatches(stores, { provider, apiKeyId }, worker, nowMs);
        if (isFull) this.#full.add(name);
        else this.#full.delete(name);
        for (const batch of admitted) {
          const { id: batchId, status } = batch;
          if (status === "running") feed.publish({ type: "batch", batchId, status });
          this.#onTaken(batch);
        }
      }
    } finally {
      this.#reading.delete(name);
    }
  }

  /** Does the same for all queues of providers that are configured here, as long as `mayTake` returns true. */
  async takeAll(mayTake: () => boolean): Promise<void> {
    const { stores, presence } = this.#deps;
    const yieldSometimes = createYield(QUEUES_AT_ONCE);
    for (const queue of await stores.read.batches.waitingQueues()) {
      if (!mayTake()) return;
      if (presence.isOurs(queue.provider)) await this.takeNext(queue);
      await yieldSometimes();
    }
  }
}

const nameOf = ({ provider, apiKeyId }: BatchQueue) => JSON.stringify([provider, apiKeyId]);

/** Inputs that are read at once: each may hold a large line in memory. */
const AT_ONCE = 2;
/** Pauses after a failure of the storage. */
const AGAIN = { baseMs: 5000, capMs: 300_000 };

/**
 * Reads the inputs of batch jobs into items, few at a time, and one at a time of each API key: large inputs of one key hold
 * up no other. After a kill or a failure of the disk it begins again.
 */
export class Intake {
  readonly #deps: WorkerDeps;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  /** The inputs of each key that has some. Only the first of each is in the queue. */
  readonly #ofKeys = new Map<string, PQueue>();
  readonly #stopping = new AbortController();
  /** How often in a row the storage has failed during the reading of a batch. */
  readonly #failures = new Map<string, number>();

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
  }

  /**
   * Reads the input of a queued batch when its turn comes. Returns `queued` when its items are written, `failed` when it
   * cannot be processed, and null, without any change, when the service stops, while `isHeld`, or when it has moved on.
   */
  async take(batch: BatchRecord, isHeld: () => boolean): Promise<BatchStatus | null> {
    const own = this.#ofKeys.get(batch.apiKeyId) ?? new PQueue({ concurrency: 1 });
    this.#ofKeys.set(batch.apiKeyId, own);
    const read = () => this.#take(batch, () => this.#stopping.signal.aborted || isHeld());
    try {
      const status = await own
        .add(() => this.#queue.add(read))
        .finally(() => {
          if (own.size + own.pending === 0) this.#ofKeys.delete(batch.apiKeyId);
        });
      this.#failures.delete(batch.id);
      return status;
    } catch (error) {
      if (error instanceof StorageUnavailable) await this.#backOff(batch.id, error);
      throw error;
    }
  }

  /** Ends what is being read soon; the next start begins it again. */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * A disk that is full must not stay so because of what the reading has stored: the input, which alone is kept, is read from
   * the start again.
   */
  async #backOff(batchId: string, { reason }: StorageUnavailable): Promise<void> {
    const { clock, random, stores, presence } = this.#deps;
    const failures = (this.#failures.get(batchId) ?? 0) + 1;
    this.#failures.set(batchId, failures);
    const batch = await stores.read.batches.byId(batchId).catch(() => null);
    // After a commit whose outcome is not known, records may name the files.
    const isUnread = reason !== "unknown-commit" && batch !== null && !hasItems(batch);
    // Beside others, one of them may be reading it by now.
    if (isUnread && presence.isAlone) await this.#dropRead(batch).catch(() => {});
    await clock.sleep(backoffMs(failures, AGAIN, random), this.#stopping.signal).catch(() => {});
    const now = await stores.read.batches.byId(batchId).catch(() => batch);
    if (now?.status !== "queued") this.#failures.delete(batchId);
  }

  async #dropRead({ id, input }: BatchRecord): Promise<void> {
    const { blobs } = this.#deps;
    for (const { key } of await blobs.list(inputsPrefix(id)))
      if (key !== input?.blobKey) await blobs.delete(key);
  }

  async #take(batch: BatchRecord, isOver: () => boolean): Promise<BatchStatus | null> {
    const taken = isOver() ? null : await takeIn(this.#deps, batch, isOver);
    if (taken === null) {
      await this.#dropInputs(batch.id);
      return null;
    }
    const { feed } = this.#deps;
    if ("error" in taken) {
      const failed = await failBatch(this.#deps, batch.id, taken.error, () => endOf(this.#deps));
      await this.#dropInputs(batch.id);
      return failed && "failed";
    }
    for (const { customId, failed } of taken.items) {
      if (failed) feed.publish({ type: "item", batchId: batch.id, customId, status: "failed" });
    }
    return "queued";
  }

  /** Removes what was stored for a batch that has ended without items. Retention removes the rest later. */
  async #dropInputs(batchId: string): Promise<void> {
    const { stores, blobs } = this.#deps;
    const batch = await stores.read.batches.byId(batchId);
    if (batch === null || !isTerminal(batch.status) || hasItems(batch)) return;
    await blobs.deleteAll(inputsPrefix(batchId)).catch(() => {});
  }
}
