/** A body that is being read, or was read and still is worked with. */
export interface MemoryShare {
  /** Takes so many more bytes: null when they may be kept now, else what resolves when they may. One call at a time. */
  take(bytes: number): Promise<void> | null;
  /** The body has been read to its end; its bytes are still kept. */
  finish(): void;
  /** Nothing of it is kept any more; a call of `take` that waits is forgotten. May be called again. */
  leave(): void;
}

interface Reading {
  caller: string;
  bytes: number;
  isFinished: boolean;
  waiting: { bytes: number; resolve(): void } | null;
}

/**
 * Bounds the memory that bodies take together, not how many are sent at once: a sender that dawdles keeps little, and
 * stops nobody. Bytes are counted as they arrive. The oldest body that is still being read always goes on, unless
 * finished ones keep everything, so no two can wait for each other; all others share `sharedBytes`. Of these one
 * caller has at most `callerBytes`, its own oldest body left out. At most `2 * largest body + sharedBytes` are kept.
 */
export class MemoryBudget {
  readonly #sharedBytes: number;
  readonly #callerBytes: number;
  /** In the order in which they came. */
  readonly #places = new Set<Reading>();
  #bytes = 0;
  #finishedBytes = 0;

  constructor(sharedBytes: number, callerBytes: number) {
    this.#sharedBytes = sharedBytes;
    this.#callerBytes = callerBytes;
  }

  /** Bytes that are kept now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins a body. Callers are told apart by any text. */
  enter(caller: string): MemoryShare {
    const place: Reading = { caller, bytes: 0, isFinished: false, waiting: null };
    this.#places.add(place);
    return {
      take: (bytes) => {
        if (this.#takesNow(place, bytes)) return null;
        return new Promise((resolve) => {
          place.waiting = { bytes, resolve };
        });
      },
      finish: () => {
        if (place.isFinished) return;
        place.isFinished = true;
        this.#finishedBytes += place.bytes;
        this.#wake();
      },
      leave: () => {
        place.waiting = null;
        if (!this.#places.delete(place)) return;
        this.#bytes -= place.bytes;
        if (place.isFinished) this.#finishedBytes -= place.bytes;
        this.#wake();
      },
    };
  }

  #wake(): void {
    for (const place of this.#places) {
      const { waiting } = place;
      if (!waiting || !this.#takesNow(place, waiting.bytes)) continue;
      place.waiting = null;
      waiting.resolve();
    }
  }

  #takesNow(place: Reading, bytes: number): boolean {
    if (!this.#fits(place, bytes)) return false;
    place.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  #fits(place: Reading, bytes: number): boolean {
    if (this.#bytes + bytes <= Math.min(this.#callerBytes, this.#sharedBytes)) return true;
    const oldest = firstReading(this.#places);
    if (place === oldest) return this.#finishedBytes <= this.#sharedBytes;
    if (this.#bytes - (oldest?.bytes ?? 0) + bytes > this.#sharedBytes) return false;
    const own = [...this.#places].filter(({ caller }) => caller === place.caller);
    const ownOldest = firstReading(own);
    const ownBytes = own.reduce((sum, other) => sum + other.bytes, 0);
    return place === ownOldest || ownBytes - (ownOldest?.bytes ?? 0) + bytes <= this.#callerBytes;
  }
}

function firstReading(places: Iterable<Reading>): Reading | undefined {
  for (const place of places) if (!place.isFinished) return place;
  return undefined;
}
