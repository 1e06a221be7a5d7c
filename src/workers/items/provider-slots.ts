import PQueue from "p-queue";
import { isPaid } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import { RoundRobin } from "../round-robin.ts";
import type { ActiveBatch } from "./active-batch.ts";

/** The slots of one provider, and the batches that may use them next. */
export class ProviderSlots {
  readonly provider: ItemProvider;
  /** A stop waits for its requests, because they cost money. */
  readonly isPaid: boolean;
  readonly queue: PQueue;
  /** Batches that may have an item to start here. */
  readonly roundRobin = new RoundRobin<ActiveBatch>();
  /** Items whose image is made and is being stored; their slots are free for the next. */
  readonly recording = new Set<Promise<void>>();

  constructor(provider: ItemProvider) {
    this.provider = provider;
    this.isPaid = isPaid(provider);
    this.queue = new PQueue({ concurrency: provider.concurrency });
  }

  /** How many more items may be claimed. */
  get free(): number {
    const { concurrency } = this.provider;
    // Storing is bounded too: images wait in memory for it.
    if (this.recording.size > concurrency) return 0;
    return concurrency - this.queue.size - this.queue.pending;
  }

  async idle(): Promise<void> {
    await this.queue.onIdle();
    await Promise.all(this.recording);
  }
}
