import { ImgbatchError } from "../../contract/errors.ts";
import { MemoryBudget } from "../../kernel/memory-budget.ts";
import { unlessAborted } from "../../kernel/signals.ts";

const MIB = 1024 * 1024;
const BUSY_RETRY_MS = 5000;
/** A body up to this size shares memory only with others of its kind: it never waits for a large one. */
const SMALL_BODY_BYTES = 4 * MIB;

/** The budgets that all bodies of one service share. */
export class BodyBudgets {
  readonly small = new MemoryBudget(64 * MIB);
  readonly large = new MemoryBudget(64 * MIB);
  /** Disk for the images of requests that have not ended. */
  readonly disk = new MemoryBudget(2048 * MIB);
}

/**
 * The memory and disk that one body has reserved. A body moves from the budget of small bodies to that of large ones once
 * it is known to be large. Bytes are reserved as they arrive.
 */
export class BodyReservation {
  readonly #budgets: BodyBudgets;
  readonly #waitMs: number;
  /** Ends waits. Null before the first: most bodies wait for nothing. */
  #left: AbortController | null = null;
  #memory: ReturnType<MemoryBudget["enter"]>;
  #memoryBytes = 0;
  #disk: ReturnType<MemoryBudget["enter"]> | null = null;
  #isLarge: boolean;

  /** `announced`: bytes of the body, 0 when unknown. `waitMs`: how long it waits for other bodies to release theirs. */
  constructor(budgets: BodyBudgets, announced: number, waitMs: number) {
    this.#budgets = budgets;
    this.#waitMs = waitMs;
    this.#isLarge = announced > SMALL_BODY_BYTES;
    this.#memory = (this.#isLarge ? budgets.large : budgets.small).enter();
  }

  /** Reserves memory. Returns null when it is reserved now, else a promise that rejects with `RATE_LIMITED` after the wait. */
  memoryFor(bytes: number): Promise<void> | null {
    this.#memoryBytes += bytes;
    if (this.#isLarge || this.#memoryBytes <= SMALL_BODY_BYTES) return this.#wait(this.#memory.take(bytes));
    this.#memory.leave();
    this.#isLarge = true;
    this.#memory = this.#budgets.large.enter();
    return this.#wait(this.#memory.take(this.#memoryBytes));
  }

  /** The same for bytes on the disk. */
  diskFor(bytes: number): Promise<void> | null {
    this.#disk ??= this.#budgets.disk.enter();
    return this.#wait(this.#disk.take(bytes));
  }

  /** The body has been read. */
  finish(): void {
    this.#memory.finish();
    this.#disk?.finish();
  }

  /** Releases everything. A pending reservation rejects because the request has ended. */
  leave(): void {
    this.#left?.abort(new Error("the request ended early"));
    this.#memory.leave();
    this.#disk?.leave();
  }

  #wait(reserved: Promise<void> | null): Promise<void> | null {
    if (reserved === null) return null;
    this.#left ??= new AbortController();
    const left = this.#left;
    const timer = setTimeout(() => left.abort(busy()), this.#waitMs);
    return unlessAborted(reserved, left.signal).finally(() => clearTimeout(timer));
  }
}

function busy(): ImgbatchError {
  const message = "Other requests with large bodies keep the service busy; send it again later.";
  return new ImgbatchError("RATE_LIMITED", message, { retryAfterMs: BUSY_RETRY_MS });
}
