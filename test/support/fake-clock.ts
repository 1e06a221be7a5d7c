import { type Clock, systemClock } from "../../src/kernel/clock.ts";

interface Sleeper {
  wakeAtMs: number;
  wake(): void;
}

/** Time that moves only when a test says so. */
export class FakeClock implements Clock {
  #nowMs: number;
  readonly #sleepers = new Set<Sleeper>();

  constructor(startMs = Date.UTC(2030, 0, 2, 3, 4, 5)) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  get sleeperCount(): number {
    return this.#sleepers.size;
  }

  /** How long the next sleeper still sleeps; null when nobody does. */
  get nextWakeInMs(): number | null {
    const wakes = [...this.#sleepers].map((sleeper) => sleeper.wakeAtMs - this.#nowMs);
    return wakes.length === 0 ? null : Math.min(...wakes);
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const end = (settle: () => void) => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener("abort", onAbort);
        settle();
      };
      const onAbort = () => end(() => reject(signal?.reason));
      const sleeper: Sleeper = { wakeAtMs: this.#nowMs + ms, wake: () => end(resolve) };
      this.#sleepers.add(sleeper);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Moves time on and wakes who slept until then. */
  advance(ms: number): void {
    this.#nowMs += ms;
    for (const sleeper of [...this.#sleepers]) if (sleeper.wakeAtMs <= this.#nowMs) sleeper.wake();
  }
}

/** A wall clock that is set forward and back, while time itself (what sleeps wait for) goes on evenly. */
export class SetbackClock extends FakeClock {
  #offsetMs = 0;

  override nowMs(): number {
    return super.nowMs() + this.#offsetMs;
  }

  override monotonicMs(): number {
    return super.nowMs();
  }

  /** Sets the wall clock; nobody wakes. */
  set(byMs: number): void {
    this.#offsetMs += byMs;
  }
}

/** Real time, shown by a clock that is wrong by this much; it can be set while it is in use. */
export function wrongClock(byMs: number) {
  const clock = { ...systemClock, byMs, nowMs: () => systemClock.nowMs() + clock.byMs };
  return clock;
}
