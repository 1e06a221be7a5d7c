import type { BatchQueue, Stores } from "../domain/ports/stores.ts";
import type { BatchRecord } from "../domain/records.ts";

/** How many batches of one key are worked on at once with one provider. */
export const BATCHES_IN_HAND = 32;

/**
 * Decides which batches are in hand: few of each queue. The others wait in the database as `queued`, in the order in
 * which they came. So thousands of waiting batches cost neither memory nor a slow start, and a key with many of them
 * does not keep another key's batch waiting.
 */
export class Admission {
  readonly #stores: Stores;
  /** Batch id → its queue. */
  readonly #inHand = new Map<string, BatchQueue>();
  readonly #sizes = new Map<string, number>();
  /** Queues of which batches may wait in the database, with a mark of the last time that one came to wait. */
  readonly #waiting = new Map<string, object>();

  constructor(stores: Stores) {
    this.#stores = stores;
  }

  has(batchId: string): boolean {
    return this.#inHand.has(batchId);
  }

  /** Takes a batch in hand that was at work before, even when its queue is full. */
  resume(batch: BatchRecord): void {
    this.#take(batch);
  }

  /** Takes a new batch in hand, unless others of its queue come first. Returns whether it was taken. */
  enter(batch: BatchRecord): boolean {
    if (this.has(batch.id)) return true;
    const queue = nameOf(batch);
    if (this.#waiting.has(queue) || this.#isFull(queue)) {
      this.#waiting.set(queue, {});
      return false;
    }
    this.#take(batch);
    return true;
  }

  /** Forgets a batch that has ended. Returns its queue, which can take another; null when the batch was not in hand. */
  leave(batchId: string): BatchQueue | null {
    const queue = this.#inHand.get(batchId);
    if (!queue) return null;
    this.#inHand.delete(batchId);
    const name = nameOf(queue);
    const size = (this.#sizes.get(name) ?? 1) - 1;
    if (size > 0) this.#sizes.set(name, size);
    else this.#sizes.delete(name);
    return queue;
  }

  /** Records that batches of the queue may wait in the database. */
  expect(queue: BatchQueue): void {
    this.#waiting.set(nameOf(queue), {});
  }

  /**
   * Takes the next batches of the queue in hand, up to its limit, and returns them. More may wait until it returns
   * none.
   */
  async refill(queue: BatchQueue): Promise<BatchRecord[]> {
    const name = nameOf(queue);
    for (;;) {
      const mark = this.#waiting.get(name);
      if (mark === undefined || this.#isFull(name)) return [];
      // Of so many, those that are in hand already leave enough for every free place.
      const first = await this.#stores.read.batches.waiting(queue, BATCHES_IN_HAND);
      const taken: BatchRecord[] = [];
      for (const batch of first) {
        if (this.has(batch.id)) continue;
        if (this.#isFull(name)) return taken;
        this.#take(batch);
        taken.push(batch);
      }
      // A batch that came to wait during the look may be missing in it.
      const isAll = first.length < BATCHES_IN_HAND && this.#waiting.get(name) === mark;
      if (isAll) this.#waiting.delete(name);
      if (isAll || taken.length > 0) return taken;
    }
  }

  #isFull(queue: string): boolean {
    return (this.#sizes.get(queue) ?? 0) >= BATCHES_IN_HAND;
  }

  #take({ id, provider, apiKeyId }: BatchRecord): void {
    if (this.#inHand.has(id)) return;
    const queue = { provider, apiKeyId };
    this.#inHand.set(id, queue);
    this.#sizes.set(nameOf(queue), (this.#sizes.get(nameOf(queue)) ?? 0) + 1);
  }
}

const nameOf = ({ provider, apiKeyId }: BatchQueue) => JSON.stringify([provider, apiKeyId]);
