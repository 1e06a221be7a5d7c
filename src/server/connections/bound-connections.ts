import type { Server } from "node:http";
import type { Socket } from "node:net";
import { LEAST_BYTES_PER_SECOND } from "../../kernel/transfer-rate.ts";
import { connectionOf } from "./exchange.ts";

/** How slowly a reader may take an answer. It is looked at in steps. */
export interface ReaderPace {
  stepMs: number;
  /** In each step so many bytes must leave … */
  bytesPerStep: number;
  /** … or have left before, beyond what was needed: a reader begins with so many … */
  firstBytes: number;
  /** … and saves at most so many. */
  savedBytes: number;
}

/**
 * A minute to begin with. The system takes bytes for a slow reader in lumps: on the loopback interface, 1.4 MiB in one go
 * and then none for as long as the reader needs for them. So a lump counts for up to 192 s.
 */
const READER_PACE: ReaderPace = {
  stepMs: 5000,
  bytesPerStep: 5 * LEAST_BYTES_PER_SECOND,
  firstBytes: 60 * LEAST_BYTES_PER_SECOND,
  savedBytes: 192 * LEAST_BYTES_PER_SECOND,
};

/** Each takes some 20 KB and a file handle; slow senders must not use up what the database and images need. */
const MAX_CONNECTIONS = 2000;

export interface ConnectionBounds {
  /** Default: 2000. */
  maxConnections?: number;
  /** Default: 8 KiB/s over a minute. */
  readerPace?: ReaderPace;
}

/**
 * Keeps connections within bounds. When there are too many, one that is of no use makes room for a new one. One whose
 * reader makes no progress ends, never for the length of its answer; our own slowness does not count.
 */
export function boundConnections(server: Server, bounds: ConnectionBounds): void {
  const { maxConnections = MAX_CONNECTIONS, readerPace: pace = READER_PACE } = bounds;
  /** Oldest first. */
  const readers = new Map<Socket, Reader>();
  server.on("connection", (socket: Socket) => {
    if (readers.size >= maxConnections) {
      const victim = leastUseful(readers.keys()) ?? socket;
      readers.delete(victim);
      victim.destroy();
      if (victim === socket) return;
    }
    readers.set(socket, new Reader(socket, pace));
    socket.once("close", () => readers.delete(socket));
  });
  // Not before: a server that cannot listen never closes, and a timer would keep the process.
  server.once("listening", () => {
    const timer = setInterval(() => {
      for (const [socket, reader] of readers) if (reader.isTooSlow()) socket.destroy();
    }, pace.stepMs);
    server.once("close", () => clearInterval(timer));
  });
}

/**
 * Whoever has shown a valid key and is served keeps its connection: null when all are of this kind. Anybody can fill the
 * service with others, so the oldest of these goes: idle ones without a key, then busy ones, then idle ones with a key.
 */
function leastUseful(oldestFirst: Iterable<Socket>): Socket | null {
  let busy: Socket | null = null;
  let idle: Socket | null = null;
  for (const socket of oldestFirst) {
    const { hasKey, isIdle } = connectionOf(socket);
    if (isIdle && !hasKey) return socket;
    if (!hasKey) busy ??= socket;
    else if (isIdle) idle ??= socket;
  }
  return busy ?? idle;
}

/** The other side of a connection, as the one that takes answers. */
class Reader {
  readonly #socket: Socket;
  readonly #pace: ReaderPace;
  #takenBytes = 0;
  #savedBytes: number;

  constructor(socket: Socket, pace: ReaderPace) {
    this.#socket = socket;
    this.#pace = pace;
    this.#savedBytes = pace.firstBytes;
  }

  /** To be asked once in each step. */
  isTooSlow(): boolean {
    const { takenBytes, waitingBytes } = outgoing(this.#socket);
    const movedBytes = takenBytes - this.#takenBytes;
    this.#takenBytes = takenBytes;
    const { firstBytes, savedBytes, bytesPerStep } = this.#pace;
    // Nothing waits for the reader: what it was slow with before is forgotten.
    if (waitingBytes === 0) this.#savedBytes = firstBytes;
    else this.#savedBytes = Math.min(this.#savedBytes + movedBytes, savedBytes) - bytesPerStep;
    return this.#savedBytes < 0;
  }
}

/** Node publishes only whole writes, and a write may be an answer of many megabytes: the handle knows of their parts. */
interface Handle {
  bytesWritten: number;
  writeQueueSize: number;
}

function outgoing(socket: Socket): { takenBytes: number; waitingBytes: number } {
  const { _handle: handle } = socket as Socket & { _handle?: Handle | null };
  if (!handle) return { takenBytes: 0, waitingBytes: 0 };
  const { bytesWritten, writeQueueSize } = handle;
  return { takenBytes: bytesWritten - writeQueueSize, waitingBytes: writeQueueSize };
}
