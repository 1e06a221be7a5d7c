import { admitBatches } from "../domain/batches/lifecycle.ts";
import type { BatchQueue } from "../domain/ports/batch-repository.ts";
import type { BatchRecord } from "../domain/records.ts";
import { createYield } from "../kernel/yield.ts";
import type { WorkerDeps } from "./deps.ts";

const QUEUES_AT_ONCE = 20;

/** Takes batches from their queues, one look at a queue at a time. */
export class Admission {
  readonly #deps: WorkerDeps;
  readonly #onTaken: (batch: BatchRecord) => void;
  readonly #isInHand: (batchId: string) => boolean;
  /** Queues that are being looked at, and whether to look once more afterwards. */
  readonly #looking = new Map<string, { again: boolean }>();
  /** Queues that were full at the last look. */
  readonly #full = new Set<string>();

  /**
   * `onTaken` gets each batch that was taken, in the order in which they came. `isInHand`: it has got the batch, and still
   * has to do with it.
   */
  constructor(
    deps: WorkerDeps,
    { onTaken, isInHand }: { onTaken(batch: BatchRecord): void; isInHand(batchId: string): boolean },
  ) {
    this.#deps = deps;
    this.#onTaken = onTaken;
    this.#isInHand = isInHand;
  }

  /**
   * Whether a look at the queue would find it full for certain. The end of any batch in hand then brings the next look. It is
   * not certain beside other processes, which may have ended some, nor during a look, which may have missed the newest batch.
   */
  isFull(queue: BatchQueue): boolean {
    const name = nameOf(queue);
    return this.#deps.presence.isAlone && this.#full.has(name) && !this.#looking.has(name);
  }

  /** Takes the next batches of a queue, as many as it may have in hand. */
  async takeNext({ provider, apiKeyId }: BatchQueue): Promise<void> {
    const name = nameOf({ provider, apiKeyId });
    const current = this.#looking.get(name);
    if (current) {
      current.again = true;
      return;
    }
    const { stores, clock, presence, feed } = this.#deps;
    const look = { again: true };
    this.#looking.set(name, look);
    try {
      while (look.again) {
        look.again = false;
        const nowMs = () => clock.nowMs();
        const worker = { id: presence.id, isInHand: this.#isInHand };
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
      this.#looking.delete(name);
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
