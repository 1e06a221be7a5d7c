import { randomBytes } from "node:crypto";
import { closeSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";

/** Bytes that the spool keeps. */
export interface Kept {
  bytes: number;
  /** The bytes as they were. */
  read(): Buffer;
}

/** A long text that the spool keeps. */
export interface KeptText {
  /** UTF-16 code units, as of a string. */
  length: number;
  /** Bytes of its JSON text, quotes included. */
  jsonBytes: number;
  read(): string;
}

/** A text in memory or in the spool. */
export type PromptText = string | KeptText;

export function textOf(text: PromptText): string {
  return typeof text === "string" ? text : text.read();
}

/** This much of an input stays in memory. */
const MEMORY_BYTES = 16 * 1024 * 1024;

/**
 * Keeps the prompts and images that a run has to send: first in memory, then in a temporary file. The file has no name,
 * so it disappears with the process even after a kill. It is closed when its last reader is collected.
 */
export class Spool {
  #memoryLeft: number;
  #file: SpoolFile | null = null;

  /** `memoryBytes` is how much may stay in memory. */
  constructor(memoryBytes = MEMORY_BYTES) {
    this.#memoryLeft = memoryBytes;
  }

  /** Keeps bytes. Throws `SAVE_FAILED` when the temporary file cannot be written. */
  keep(data: Buffer): Kept {
    if (this.#takeMemory(data.length)) return { bytes: data.length, read: () => data };
    return this.#append(data);
  }

  /** Keeps well-formed text. Throws the same. */
  keepText(text: string): PromptText {
    if (this.#takeMemory(2 * text.length)) return text;
    const kept = this.#append(Buffer.from(text, "utf16le"));
    const jsonBytes = Buffer.byteLength(JSON.stringify(text));
    const { length } = text;
    return { length, jsonBytes, read: () => kept.read().toString("utf16le") };
  }

  #takeMemory(bytes: number): boolean {
    if (bytes > this.#memoryLeft) return false;
    this.#memoryLeft -= bytes;
    return true;
  }

  #append(data: Buffer): Kept {
    this.#file ??= new SpoolFile();
    const file = this.#file;
    const start = file.append(data);
    // Copy the length: a closure over `data` would keep the buffer alive.
    const bytes = data.length;
    return { bytes, read: () => file.read(start, bytes) };
  }
}

/** Closes a file when its last reader is collected. The end of the process closes the others. */
const forgotten = new FinalizationRegistry<number>((descriptor) => closeSync(descriptor));

class SpoolFile {
  readonly #descriptor: number;
  #size = 0;

  constructor() {
    const path = join(tmpdir(), `imgbatch-${randomBytes(8).toString("hex")}`);
    this.#descriptor = trying(() => openSync(path, "wx+", 0o600));
    forgotten.register(this, this.#descriptor);
    // Without a name, the file exists only while it is open.
    rmSync(path, { force: true });
  }

  append(data: Buffer): number {
    const start = this.#size;
    for (let done = 0; done < data.length; )
      done += trying(() => writeSync(this.#descriptor, data, done, data.length - done, start + done));
    this.#size += data.length;
    return start;
  }

  read(start: number, bytes: number): Buffer {
    const data = Buffer.allocUnsafe(bytes);
    for (let done = 0; done < bytes; ) {
      const read = trying(() => readSync(this.#descriptor, data, done, bytes - done, start + done));
      if (read === 0) throw new ImgbatchError("INTERNAL", "A temporary file lost its end.");
      done += read;
    }
    return data;
  }
}

function trying<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const message = `The input is too large for the memory, and a temporary file cannot be used (${code}).`;
    const advice = `free space in ${tmpdir()}, or set TMPDIR to another directory; nothing was sent`;
    throw new ImgbatchError("SAVE_FAILED", message, { cause, advice });
  }
}
