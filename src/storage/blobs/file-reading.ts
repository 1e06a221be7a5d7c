import { type FileHandle, open, stat } from "node:fs/promises";
import PQueue from "p-queue";

/** Fills the memory with the bytes of a file from `at` on. Returns how many: fewer than it holds only at the end. */
export async function readFully(file: FileHandle, memory: Buffer, at: number): Promise<number> {
  for (let done = 0; ; ) {
    const { bytesRead } = await file.read(memory, done, memory.length - done, at + done);
    done += bytesRead;
    if (bytesRead === 0 || done === memory.length) return done;
  }
}

/** Readers at once; a waiting one needs no memory. */
const LENT_AT_ONCE = 2;
/** Memory that was not lent for this time is freed. */
const IDLE_MS = 2000;

/**
 * Lends memory for short work, and lends the same memory again. Memory that is dropped after each use stays with the
 * process until the engine collects it, which can be hundreds of megabytes later.
 */
export class LentMemory {
  readonly #queue = new PQueue({ concurrency: LENT_AT_ONCE });
  #free: Buffer[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** Runs the work with the content of a file. Rejects with the error of opening or reading the file. */
  async withFile<T>(path: string, work: (bytes: Buffer) => Promise<T>): Promise<T> {
    const { size } = await stat(path);
    return this.#queue.add(async () => {
      clearTimeout(this.#timer);
      const memory = this.#take(size);
      try {
        return await work(await readInto(path, memory.subarray(0, size)));
      } finally {
        this.#free.push(memory);
        this.#timer = this.#giveUpLater();
      }
    }) as Promise<T>;
  }

  /** Takes the largest free memory, or new memory when that is too small. */
  #take(size: number): Buffer {
    this.#free.sort((a, b) => a.length - b.length);
    const largest = this.#free.pop();
    return largest && largest.length >= size ? largest : Buffer.allocUnsafeSlow(size);
  }

  #giveUpLater(): NodeJS.Timeout {
    clearTimeout(this.#timer);
    return setTimeout(() => {
      this.#free = [];
    }, IDLE_MS).unref();
  }
}

async function readInto(path: string, bytes: Buffer): Promise<Buffer> {
  const file = await open(path, "r");
  try {
    return bytes.subarray(0, await readFully(file, bytes, 0));
  } finally {
    await file.close();
  }
}
