import type { FileHandle } from "node:fs/promises";

/** Fills the memory with the bytes of a file from `at` on. Returns how many: fewer than it holds only at the end. */
export async function readFully(file: FileHandle, memory: Buffer, at: number): Promise<number> {
  for (let done = 0; ; ) {
    const { bytesRead } = await file.read(memory, done, memory.length - done, at + done);
    done += bytesRead;
    if (bytesRead === 0 || done === memory.length) return done;
  }
}
