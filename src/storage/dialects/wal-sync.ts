import { close, fdatasync, openSync } from "node:fs";
import { promisify } from "node:util";

const sync = promisify(fdatasync);

/**
 * Makes commits to a write-ahead log durable in a thread of its own, so that the event loop goes on while the disk works.
 * Commits that come during a sync share the next one.
 */
export class WalSync {
  readonly #file: string;
  readonly #failure: (cause: unknown) => Error;
  #descriptor: number | null = null;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  /** `failure` is called once, when the disk fails, and returns the error with which all waiting and later calls reject. */
  constructor(file: string, failure: (cause: unknown) => Error) {
    this.#file = file;
    this.#failure = failure;
  }

  /** Resolves when all commits before the last call of `flush` are durable. Null when they are now. */
  get pending(): Promise<void> | null {
    return this.#next ?? this.#running;
  }

  /** Resolves when all commits before this call are durable. */
  flush(): Promise<void> {
    if (this.#running === null) return this.#begin();
    this.#next ??= this.#running.then(() => this.#begin());
    return this.#next;
  }

  /** The descriptor is closed as soon as no sync uses it. */
  close(): void {
    const closeNow = () => {
      if (this.#descriptor !== null) close(this.#descriptor);
      this.#descriptor = null;
    };
    if (this.pending === null) closeNow();
    else this.pending.then(closeNow, closeNow);
  }

  #begin(): Promise<void> {
    this.#next = null;
    this.#running = this.#sync().then(() => {
      this.#running = null;
    });
    return this.#running;
  }

  /** After a failed sync the disk may report success for what it has lost, so `#running` stays rejected for good. */
  async #sync(): Promise<void> {
    try {
      this.#descriptor ??= openSync(this.#file, "r");
      await sync(this.#descriptor);
    } catch (cause) {
      throw this.#failure(cause);
    }
  }
}
