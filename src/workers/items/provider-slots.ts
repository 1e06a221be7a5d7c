import PQueue from "p-queue";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import { RoundRobin } from "../round-robin.ts";
import type { ActiveBatch } from "./active-batch.ts";

/** Images that wait to be stored hold no more memory than this, in bytes, before their provider gets no new requests. */
const MOST_STORING_BYTES = 256 * 2 ** 20;

/** The slots of one provider, and the batches that may use them next. */
export class ProviderSlots {
  readonly provider: ItemProvider;
  readonly queue: PQueue;
  /** Batches that may have an item to start here. */
  readonly roundRobin = new RoundRobin<ActiveBatch>();
  /** Results that are being recorded. Their slots are free for the next. */
  readonly #recording = new Set<Promise<void>>();
  #recordingBytes = 0;

  constructor(provider: ItemProvider) {
    this.provider = provider;
    this.queue = new PQueue({ concurrency: provider.concurrency });
  }

  /** How many more items may be claimed. While too many images wait to be stored, it is 0. */
  get free(): number {
    const { concurrency } = this.provider;
    if (this.#recording.size > concurrency || this.#recordingBytes > MOST_STORING_BYTES) return 0;
    return concurrency - this.queue.size - this.queue.pending;
  }

  /** Counts a result until it is recorded, then calls `onEnd`. `bytes`: those of its images. */
  record(work: Promise<void>, bytes: number, onEnd: () => void): void {
    const recorded = work.finally(() => {
      this.#recording.delete(recorded);
      this.#recordingBytes -= bytes;
      onEnd();
    });
    this.#recording.add(recorded);
    this.#recordingBytes += bytes;
  }

  async idle(): Promise<void> {
    await this.queue.onIdle();
    await Promise.all(this.#recording);
  }
}
