import type { LogLine, RequestLine } from "../contract/activity.ts";
import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

/** What has just happened, told after it was committed. */
export type ServiceEvent =
  | { type: "batch"; batchId: string; status: BatchStatus }
  /** The record of a batch was deleted: nobody is to see it any more. */
  | { type: "batch-gone"; batchId: string }
  | { type: "item"; batchId: string; customId: string; status: ItemStatus }
  | { type: "request"; line: RequestLine }
  | { type: "log"; line: LogLine };

export type Listener = (event: ServiceEvent) => void;

/** Tells listeners inside the process what the service does: a live view, metrics. Nothing depends on being told. */
export class Feed {
  readonly #listeners = new Set<Listener>();

  publish(event: ServiceEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch {
        // Who only watches must not stop the work.
      }
    }
  }

  /** Answers the function that ends the subscription. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
