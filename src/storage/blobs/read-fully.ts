import * as fs from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { promisify } from "node:util";

const [open, read] = [promisify(fs.open), promisify(fs.read)] as const;
/** Whatever was put in the place of a file, opening it must not wait. Windows has no such flag. */
const { O_RDONLY, O_NONBLOCK = 0 } = fs.constants;

/** Fills the memory with the bytes of a file from `at` on. Returns how many: fewer than it holds only at the end. */
export async function readFully(file: FileHandle, memory: Buffer, at: number): Promise<number> {
  for (let done = 0; ; ) {
    const { bytesRead } = await file.read(memory, done, memory.length - done, at + done);
    done += bytesRead;
    if (bytesRead === 0 || done === memory.length) return done;
  }
}

/** Returns the bytes of a file of this size; null when it has another one. Reads a byte more at most, to notice that. */
export async function readSized(path: string, sizeBytes: number): Promise<Buffer | null> {
  const file = await open(path, O_RDONLY | O_NONBLOCK);
  try {
    const memory = Buffer.allocUnsafeSlow(sizeBytes + 1);
    let done = 0;
    for (let more = 1; more > 0 && done < memory.length; done += more) {
      more = (await read(file, memory, done, memory.length - done, done)).bytesRead;
      if (done + more === sizeBytes) return memory.subarray(0, sizeBytes);
    }
    return null;
  } finally {
    // Closing a file that was only read takes no time, so it needs no thread.
    fs.closeSync(file);
  }
}
