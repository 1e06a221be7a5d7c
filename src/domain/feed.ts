import type { LogLine, RequestLine } from "../contract/activity.ts";
import type { BatchStatus, ItemStatus } from "../contract/statuses.ts";

/** A change of the service, published after its commit. */
export type ServiceEvent =
  | { type: "batch"; batchId: string; status: BatchStatus }
  /** The record of a batch was deleted, so the batch must not be shown any more. */
  | { type: "batch-gone"; batchId: string }
  | { type: "item"; batchId: string; customId: string; status: ItemStatus }
  /**
   * Another process has changed a batch: `images` were made since its last report, and `failed` are some of the items that
   * failed, by custom id.
   */
  | { type: "elsewhere"; batchId: string; images: number; failed: readonly string[] }
  /** The images of an item were deleted; the item stays. */
  | { type: "images-gone"; batchId: string; customId: string }
  | { type: "request"; line: RequestLine }
  | { type: "log"; line: LogLine };

type Listener = (event: ServiceEvent) => void;

/** Publishes events to listeners inside the process, such as a live view or metrics. No work depends on a listener. */
export class Feed {
  readonly #listeners = new Set<Listener>();

  publish(event: ServiceEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch {
        // A failing listener must not stop the work.
      }
    }
  }

  /** Returns the function that ends the subscription. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
