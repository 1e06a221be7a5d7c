/** The share of one body: it is being read, or it was read and its request has not ended. */
export interface MemoryShare {
  /** Reserves more bytes. Returns null when they are reserved now, else a promise of that moment. One call at a time. */
  take(bytes: number): Promise<void> | null;
  /** Marks the body as read to its end. Its bytes stay reserved. */
  finish(): void;
  /** Releases the bytes and forgets a pending `take`. A second call has no effect. */
  leave(): void;
}

interface Reading {
  caller: string;
  bytes: number;
  isFinished: boolean;
  waiting: { bytes: number; resolve(): void } | null;
}

/**
 * Limits the memory of all bodies together, not their number, so a slow sender holds little and blocks no other. Bytes
 * are counted as they arrive. The oldest body that is still being read may always go on, unless finished bodies hold
 * everything, so no two bodies wait for each other. All other bodies share `sharedBytes`; one caller has at most
 * `callerBytes` of it, not counting its own oldest body. At most `2 * largest body + sharedBytes` are held.
 */
export class MemoryBudget {
  readonly #sharedBytes: number;
  readonly #callerBytes: number;
  /** Oldest first. */
  readonly #readings = new Set<Reading>();
  #bytes = 0;
  #finishedBytes = 0;

  constructor(sharedBytes: number, callerBytes: number) {
    this.#sharedBytes = sharedBytes;
    this.#callerBytes = callerBytes;
  }

  /** Bytes that are reserved now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins a body. `caller` is any text that identifies its sender. */
  enter(caller: string): MemoryShare {
    const reading: Reading = { caller, bytes: 0, isFinished: false, waiting: null };
    this.#readings.add(reading);
    return {
      take: (bytes) => {
        if (this.#takesNow(reading, bytes)) return null;
        return new Promise((resolve) => {
          reading.waiting = { bytes, resolve };
        });
      },
      finish: () => {
        if (reading.isFinished) return;
        reading.isFinished = true;
        this.#finishedBytes += reading.bytes;
        this.#wake();
      },
      leave: () => {
        reading.waiting = null;
        if (!this.#readings.delete(reading)) return;
        this.#bytes -= reading.bytes;
        if (reading.isFinished) this.#finishedBytes -= reading.bytes;
        this.#wake();
      },
    };
  }

  #wake(): void {
    for (const reading of this.#readings) {
      const { waiting } = reading;
      if (!waiting || !this.#takesNow(reading, waiting.bytes)) continue;
      reading.waiting = null;
      waiting.resolve();
    }
  }

  #takesNow(reading: Reading, bytes: number): boolean {
    if (!this.#fits(reading, bytes)) return false;
    reading.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  #fits(reading: Reading, bytes: number): boolean {
    if (this.#bytes + bytes <= Math.min(this.#callerBytes, this.#sharedBytes)) return true;
    const oldest = firstReading(this.#readings);
    if (reading === oldest) return this.#finishedBytes <= this.#sharedBytes;
    if (this.#bytes - (oldest?.bytes ?? 0) + bytes > this.#sharedBytes) return false;
    const own = [...this.#readings].filter(({ caller }) => caller === reading.caller);
    const ownOldest = firstReading(own);
    const ownBytes = own.reduce((sum, other) => sum + other.bytes, 0);
    return reading === ownOldest || ownBytes - (ownOldest?.bytes ?? 0) + bytes <= this.#callerBytes;
  }
}

function firstReading(readings: Iterable<Reading>): Reading | undefined {
  for (const reading of readings) if (!reading.isFinished) return reading;
  return undefined;
}
