import PQueue from "p-queue";
import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { inputsPrefix } from "../domain/batches/create-batch.ts";
import { failBatch } from "../domain/batches/end-batch.ts";
import { hasItems } from "../domain/batches/lifecycle.ts";
import { takeIn } from "../domain/jobs/take-in.ts";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import type { BatchRecord } from "../domain/records.ts";
import { backoffMs } from "../kernel/pacing.ts";
import { becomeOwner, endOf } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";

/** Inputs that are read at once: each may hold a large line in memory. */
const AT_ONCE = 2;
/** Pauses after a failure of the storage. */
const AGAIN = { baseMs: 5000, capMs: 300_000 };

/** Reads the inputs of batch jobs into items, few at a time. After a kill or a failure of the disk it begins again. */
export class Intake {
  readonly #deps: WorkerDeps;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  readonly #stopping = new AbortController();
  /** How often in a row the storage has failed during the reading of a batch. */
  readonly #failures = new Map<string, number>();

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
  }

  /**
   * Reads the input of a queued batch when it is the next one of its API key: large inputs of one key hold up no other.
   * Returns `queued` when its items are written, `failed` when it cannot be processed, and null, without any change, when
   * the service stops, while `isHeld`, or when the batch has moved on, or another input comes first.
   */
  async take(batch: BatchRecord, isHeld: () => boolean): Promise<BatchStatus | null> {
    const { stores, goingOn } = this.#deps;
    const isNext = (await stores.read.batches.unread(goingOn.kind)).some(({ id }) => id === batch.id);
    if (!isNext || !(await becomeOwner(this.#deps, batch.id))) return null;
    const read = () => this.#take(batch, () => this.#stopping.signal.aborted || isHeld());
    try {
      const status = await this.#queue.add(read);
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
