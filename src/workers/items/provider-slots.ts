import { isPaid } from "../../domain/offers.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ConcurrencySlots } from "../shared-concurrency.ts";
import { ClaimsAhead } from "./claims-ahead.ts";

/** A provider gets no new requests while images that wait to be stored hold more bytes than this. */
const MOST_STORING_BYTES = 256 * 2 ** 20;
/**
 * This many images may wait to be stored even if there are fewer slots: with one or two slots, a slow write would hold up
 * the next request. Paid providers are excepted: waiting images are paid for again when the process is killed.
 */
const FEW_STORING = 8;

/** A place in the line for the slots of a provider. */
interface Place {
  /**
   * Runs the work in a slot, as soon as there is one. The slot is free again when the work has ended or calls `leave`.
   * Rejects with the signal's reason when aborted while it waits.
   */
  run<T>(signal: AbortSignal, work: (leave: () => void) => Promise<T>): Promise<T>;
  /** Must be called in the end. Further calls change nothing. */
  leave(): void;
}

/** The slots of one provider, and the items that wait for them. */
export class ProviderSlots {
  readonly provider: ItemProvider;
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #slots: ConcurrencySlots;
  /** Resolves when every place so far has asked for a slot, or was left. */
  #line: Promise<void> = Promise.resolve();
  readonly #claimsAhead = new ClaimsAhead();
  /** The requests for items that were claimed, until the provider has answered. */
  readonly #requests = new Set<Promise<void>>();
  /** Those of them that have a slot. */
  #running = 0;
  /** When an item was last claimed, or a slot last became free. */
  #movedMs: number;
  /** Results that are being recorded. Their slots are free for the next. */
  readonly #recording = new Set<Promise<void>>();
  #recordingBytes = 0;

  constructor(provider: ItemProvider, clock: Pick<Clock, "monotonicMs">) {
    this.provider = provider;
    this.#clock = clock;
    this.#movedMs = clock.monotonicMs();
    this.#slots = new ConcurrencySlots(provider.concurrency);
  }

  /** The requests that have a slot. */
  get running(): number {
    return this.#running;
  }

  /**
   * How many more items may be claimed. While too many images wait to be stored, it is 0. Some items may be
   * claimed before there is a slot for them, and the next ones when only half of these are left. At a provider that is paid
   * no item is claimed ahead: a lease there says that its request may have been sent.
   */
  get free(): number {
    const { concurrency } = this.provider;
    const mostStoring = isPaid(this.provider) ? concurrency : Math.max(concurrency, FEW_STORING);
    if (this.#recording.size > mostStoring || this.#recordingBytes > MOST_STORING_BYTES) return 0;
    const ahead = this.#requests.size - concurrency;
    if (ahead > (this.#most - concurrency) / 2) return 0;
    return this.#most - this.#requests.size;
  }

  /** How many claimed items exceed the number that may be claimed now, which shrinks while no slot becomes free. */
  get surplus(): number {
    return Math.max(0, this.#requests.size - this.#most);
  }

  get #most(): number {
    const { concurrency } = this.provider;
    if (isPaid(this.provider)) return concurrency;
    return concurrency + this.#claimsAhead.most(concurrency, this.#clock.monotonicMs() - this.#movedMs);
  }

  /** Makes a claim, and learns how long one takes. */
  async claim<T>(work: () => Promise<T>): Promise<T> {
    const startMs = this.#clock.monotonicMs();
    const claimed = await work();
    this.#claimsAhead.claimTook(this.#clock.monotonicMs() - startMs);
    return claimed;
  }

  /** Counts the request for a claimed item until the provider has answered, then calls `onEnd`. */
  begin(request: Promise<void>, onEnd: () => void): void {
    const begun = request.finally(() => {
      this.#requests.delete(begun);
      onEnd();
    });
    this.#requests.add(begun);
    this.#movedMs = this.#clock.monotonicMs();
  }

  /** Returns the next place in the line for slots. It holds up the places behind it until it has asked for a slot, or is left. */
  takePlace(): Place {
    const before = this.#line;
    let leave = () => {};
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    this.#line = before.then(() => left);
    return {
      run: async (signal, work) => {
        await before;
        const made = this.#run(signal, work);
        leave();
        return made;
      },
      leave,
    };
  }

  #run<T>(signal: AbortSignal, work: (leave: () => void) => Promise<T>): Promise<T> {
    return this.#slots.run(false, signal, async (free) => {
      const startMs = this.#clock.monotonicMs();
      this.#running++;
      let hasLeft = false;
      const leave = (isMade: boolean) => {
        if (hasLeft) return;
        hasLeft = true;
        this.#movedMs = this.#clock.monotonicMs();
        if (isMade) this.#claimsAhead.requestTook(this.#movedMs - startMs);
        this.#running--;
        free();
      };
      try {
        const made = await work(() => leave(true));
        leave(true);
        return made;
      } finally {
        leave(false);
      }
    });
  }

  /** Counts a result until it is recorded, then calls `onEnd`. `bytes`: those of its images. */
  record(work: Promise<void>, bytes: number, onEnd: () => void): void {
    const recorded = work.finally(() => {
      this.#recording.delete(recorded);
      this.#recordingBytes -= bytes;
      onEnd();
    });
    this.#recording.add(recorded);
    this.#recordingBytes += bytes;
  }

  /** Resolves when no request and no result is left. */
  async idle(): Promise<void> {
    while (this.#requests.size + this.#recording.size > 0)
      await Promise.all([...this.#requests, ...this.#recording]);
  }
}
