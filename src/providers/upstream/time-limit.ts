import type { ProviderError } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type LinkedSignal, linkSignals } from "../../kernel/linked-signal.ts";

/** The engine would make an error with a stack for each call that ends in time. */
const IN_TIME = "in time";

/**
 * Runs a call with a signal that also aborts when its time is over. Rejects with the reason of `signal` when that is
 * aborted, with `late()` when the time is over, else with the error of the call.
 */
export async function withTimeLimit<T>(
  { clock, ms, late }: { clock: Clock; ms: number; late: () => ProviderError },
  signal: AbortSignal,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const done = new AbortController();
  clock.sleep(ms, done.signal).then(
    () => over.abort(late()),
    () => {},
  );
  const linked = linkSignals(signal, over.signal);
  try {
    return await call(linked.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    done.abort(IN_TIME);
    linked.unlink();
  }
}

/** A body from which nothing comes for this long has broken. */
const IDLE_MS = 60_000;

/** Aborts its signal when nothing has happened for a minute, and with the signal that it was made of. It runs at first. */
export class IdleTimer {
  readonly #clock: Clock;
  readonly #idle = new AbortController();
  readonly #linked: LinkedSignal;
  #waiting = new AbortController();

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#linked = linkSignals(signal, this.#idle.signal);
    this.start();
  }

  get signal(): AbortSignal {
    return this.#linked.signal;
  }

  /** Begins a new minute. */
  start(): void {
    this.stop();
    this.#waiting = new AbortController();
    this.#clock.sleep(IDLE_MS, this.#waiting.signal).then(
      () => this.#idle.abort(),
      () => {},
    );
  }

  stop(): void {
    this.#waiting.abort();
  }

  end(): void {
    this.stop();
    this.#linked.unlink();
  }
}
