import type { Waiting } from "../../domain/health/waiting.ts";
import type { Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";

/** A batch whose items are being made. */
export interface ActiveBatch {
  batch: BatchRecord;
  /** The providers that may make its items, in their order; null until they are known. */
  offers: readonly Offer<ItemProvider>[] | null;
  /** The running requests; `isPaid`: a stop waits for them. */
  running: Map<AbortController, { isPaid: boolean }>;
  /** Ends the wait for an item whose time has not come, or for a provider. */
  pause: AbortController | null;
  /** A due time that was waited for. It counts as reached even when the wall clock was set back meanwhile. */
  waitedForMs: number;
  /** While it is held, none of its items is started. */
  isHeld: boolean;
  /** Why the last request could not be sent; null when it could. */
  unreachable: string | null;
  /** Why none of its items can be made now; null while they can. */
  waiting: Waiting | null;
}

export function activeBatch(batch: BatchRecord): ActiveBatch {
  return {
    batch,
    offers: null,
    running: new Map(),
    pause: null,
    waitedForMs: 0,
    isHeld: false,
    waiting: null,
    unreachable: null,
  };
}
