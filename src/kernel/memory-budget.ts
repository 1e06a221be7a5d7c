/** The bytes that one reader has reserved. It still reads, or it has read everything and its work has not ended. */
interface MemoryShare {
  /** Reserves more bytes. Returns null when they are reserved now, else a promise of that moment. One call at a time. */
  take(bytes: number): Promise<void> | null;
  /** Marks everything as read. The bytes stay reserved. */
  finish(): void;
  /** Releases the bytes and forgets a pending `take`. A second call has no effect. */
  leave(): void;
}

interface Reading {
  bytes: number;
  isFinished: boolean;
  waiting: { bytes: number; resolve(): void } | null;
}

/**
 * A semaphore of bytes. Those that wait are served oldest first, each as soon as its bytes fit. Bytes are counted as they
 * arrive, so a slow sender holds little. The oldest reader that still reads may always go on, unless finished ones hold
 * everything, so no two readers wait for each other. All others share `sharedBytes`. At most
 * `2 * largest share + sharedBytes` are held.
 */
export class MemoryBudget {
  readonly #sharedBytes: number;
  /** Oldest first. */
  readonly #readings = new Set<Reading>();
  #bytes = 0;
  #finishedBytes = 0;

  constructor(sharedBytes: number) {
    this.#sharedBytes = sharedBytes;
  }

  /** Bytes that are reserved now. */
  get bytes(): number {
    return this.#bytes;
  }

  enter(): MemoryShare {
    const reading: Reading = { bytes: 0, isFinished: false, waiting: null };
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
    const oldest = this.#oldest();
    if (reading === oldest) return this.#finishedBytes <= this.#sharedBytes;
    return this.#bytes - (oldest?.bytes ?? 0) + bytes <= this.#sharedBytes;
  }

  /** The oldest reader that still reads. */
  #oldest(): Reading | undefined {
    for (const reading of this.#readings) if (!reading.isFinished) return reading;
    return undefined;
  }
}
