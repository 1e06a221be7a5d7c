import type { ImageProvider, ItemProvider } from "../domain/ports/image-provider.ts";

/** After this many real-time requests in a row, a waiting item of a batch comes first. */
const URGENT_IN_A_ROW = 3;

type Waiter = { start(): void };

/**
 * The slots of one provider, for real-time requests and batches. Real-time requests go first, but never keep batches
 * waiting for ever.
 */
class ProviderSlots {
  #free: number;
  #urgentInARow = 0;
  readonly #urgent: Waiter[] = [];
  readonly #patient: Waiter[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * Runs the work in a slot of its own, which is free again when the work has ended or calls `release`. Rejects with the
   * signal's reason when aborted while it waits.
   */
  async run<T>(
    isUrgent: boolean,
    signal: AbortSignal,
    work: (release: () => void) => Promise<T>,
  ): Promise<T> {
    await this.#acquire(isUrgent ? this.#urgent : this.#patient, signal);
    let isReleased = false;
    const release = () => {
      if (isReleased) return;
      isReleased = true;
      this.#free++;
      this.#startNext();
    };
    try {
      return await work(release);
    } finally {
      release();
    }
  }

  #acquire(line: Waiter[], signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const giveUp = () => {
        line.splice(line.indexOf(waiter), 1);
        reject(signal.reason);
      };
      const waiter = {
        start: () => {
          signal.removeEventListener("abort", giveUp);
          resolve();
        },
      };
      signal.addEventListener("abort", giveUp, { once: true });
      line.push(waiter);
      this.#startNext();
    });
  }

  #startNext(): void {
    while (this.#free > 0) {
      const isBatchDue = this.#urgentInARow >= URGENT_IN_A_ROW && this.#patient.length > 0;
      const urgent = isBatchDue ? undefined : this.#urgent.shift();
      const next = urgent ?? this.#patient.shift();
      if (!next) return;
      this.#urgentInARow = urgent && this.#patient.length > 0 ? this.#urgentInARow + 1 : 0;
      this.#free--;
      next.start();
    }
  }
}

const SLOTS = new WeakMap<ItemProvider, ProviderSlots>();

/** Returns the slots of a provider: the same ones for batches and real time. */
export function slotsOf(provider: ItemProvider): ProviderSlots {
  const slots = SLOTS.get(provider) ?? new ProviderSlots(provider.concurrency);
  SLOTS.set(provider, slots);
  return slots;
}

/** The same provider for real time: each request waits for a slot, ahead of the items of batches. */
function forRealtime(provider: ItemProvider): ItemProvider {
  const { name, concurrency, upstream } = provider;
  const slots = slotsOf(provider);
  return {
    kind: "item",
    name,
    concurrency,
    ...(upstream ? { upstream } : {}),
    serves: (model) => provider.serves(model),
    generate: (request, signal, onSent, onAnswered) =>
      slots.run(true, signal, (release) =>
        provider.generate(request, signal, onSent, (bytes) => {
          release();
          onAnswered?.(bytes);
        }),
      ),
    close: () => provider.close(),
  };
}

/**
 * Returns the providers for batches and for real time, in their order, as their entries allow. A job provider cannot
 * work in real time.
 */
export function shareProviders(providers: readonly ImageProvider[]): {
  forBatches: ImageProvider[];
  forRealtime: ItemProvider[];
} {
  const usedFor = (use: "batches" | "realtime") =>
    providers.filter(({ upstream }) => upstream?.uses.includes(use) ?? true);
  return {
    forBatches: usedFor("batches"),
    forRealtime: usedFor("realtime").flatMap((each) => (each.kind === "item" ? forRealtime(each) : [])),
  };
}
