import type { Waiting } from "../../contract/waiting.ts";
import type { Offer } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ItemWork } from "./run-item.ts";

/** A request from its claim until its result is recorded. */
export interface RunningRequest {
  work: ItemWork;
  controller: AbortController;
  /** `waiting`: it has no slot. `unsent`: nothing has left for the provider. `sent`: it may be paid. */
  state: "waiting" | "unsent" | "sent" | "ended";
}

/** A batch whose items are being made. */
export interface ActiveBatch {
  batch: BatchRecord;
  /** The providers that may make its items, in their order; null until they are known. */
  offers: readonly Offer<ItemProvider>[] | null;
  /** False when it is known that none of its items has any. */
  hasReferences: boolean;
  /** The providers at which it may have an item to start. */
  readyAt: Set<ItemProvider>;
  /** The requests for its items. */
  running: Set<RunningRequest>;
  /** Whether none of its items is left to claim. Only an item that is given back changes that. */
  isAllClaimed: boolean;
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
    hasReferences: true,
    readyAt: new Set(),
    running: new Set(),
    isAllClaimed: false,
    pause: null,
    waitedForMs: 0,
    isHeld: false,
    waiting: null,
    unreachable: null,
  };
}
