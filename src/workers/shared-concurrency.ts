import type { ImageProvider, ItemProvider } from "../domain/ports/image-provider.ts";

/** After this many real-time requests in a row, a waiting item of a batch comes first. */
const URGENT_IN_A_ROW = 3;

interface Waiter {
  start(): void;
}

/**
 * The slots of one provider, for real-time requests and batches. Real-time requests go first, but never keep batches
 * waiting for ever.
 */
export class ConcurrencySlots {
  #free: number;
  #urgentInARow = 0;
  readonly #urgent: Waiter[] = [];
  readonly #patient: Waiter[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * Runs the work in a slot of its own, which is free again when the work has ended or calls `leave`. Rejects with the
   * signal's reason when aborted while it waits.
   */
  async run<T>(isUrgent: boolean, signal: AbortSignal, work: (leave: () => void) => Promise<T>): Promise<T> {
    await this.#enter(isUrgent ? this.#urgent : this.#patient, signal);
    let hasLeft = false;
    const leave = () => {
      if (hasLeft) return;
      hasLeft = true;
      this.#free++;
      this.#admit();
    };
    try {
      return await work(leave);
    } finally {
      leave();
    }
  }

  #enter(line: Waiter[], signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const leave = () => {
        line.splice(line.indexOf(waiter), 1);
        reject(signal.reason);
      };
      const waiter = {
        start: () => {
          signal.removeEventListener("abort", leave);
          resolve();
        },
      };
      signal.addEventListener("abort", leave, { once: true });
      line.push(waiter);
      this.#admit();
    });
  }

  #admit(): void {
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

/** Makes two providers of one. Together they never run more requests at once than it takes. */
export function shareConcurrency(provider: ItemProvider): {
  forBatches: ItemProvider;
  forRealtime: ItemProvider;
} {
  const slots = new ConcurrencySlots(provider.concurrency);
  const through = (isUrgent: boolean): ItemProvider => ({
    kind: "item",
    name: provider.name,
    concurrency: provider.concurrency,
    ...(provider.upstream ? { upstream: provider.upstream } : {}),
    serves: (model) => provider.serves(model),
    generate: (request, signal, onSent, onAnswered) =>
      slots.run(isUrgent, signal, (leave) =>
        provider.generate(request, signal, onSent, (bytes) => {
          leave();
          onAnswered?.(bytes);
        }),
      ),
    close: () => provider.close(),
  });
  return { forBatches: through(false), forRealtime: through(true) };
}

/**
 * Returns the providers for batches and for real time, in their order, as their entries allow. A job provider cannot
 * work in real time.
 */
export function shareProviders(providers: readonly ImageProvider[]): {
  forBatches: ImageProvider[];
  forRealtime: ItemProvider[];
} {
  const forRealtime: ItemProvider[] = [];
  const forBatches: ImageProvider[] = [];
  for (const provider of providers) {
    const uses = provider.upstream?.uses ?? ["batches", "realtime"];
    const shared = provider.kind === "item" ? shareConcurrency(provider) : null;
    if (uses.includes("batches")) forBatches.push(shared?.forBatches ?? provider);
    if (shared && uses.includes("realtime")) forRealtime.push(shared.forRealtime);
  }
  return { forBatches, forRealtime };
}
