import type { Server } from "node:http";
import type { Socket } from "node:net";
import { LEAST_BYTES_PER_SECOND } from "../../kernel/transfer-rate.ts";
import { connectionOf } from "./exchange.ts";

/** The slowest rate at which a reader may take a response, checked in steps. */
export interface ReaderRate {
  stepMs: number;
  /** This many bytes must leave in each step. Bytes beyond these are saved for later steps. */
  bytesPerStep: number;
  /** A reader begins as if it had saved this many bytes. */
  firstBytes: number;
  /** The most bytes that a reader can have saved. */
  savedBytes: number;
}

/**
 * A minute to begin with. The system takes bytes for a slow reader in lumps: on the loopback interface, 1.4 MiB in one go
 * and then none for as long as the reader needs for them. So a lump counts for up to 192 s.
 */
const READER_RATE: ReaderRate = {
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
  readerRate?: ReaderRate;
}

/**
 * Limits connections. When there are too many, the least useful one is closed for a new one. A connection whose reader
 * makes no progress is closed, however short its response; slowness of the service itself does not count.
 */
export function boundConnections(server: Server, bounds: ConnectionBounds): void {
  const { maxConnections = MAX_CONNECTIONS, readerRate: rate = READER_RATE } = bounds;
  /** Oldest first. */
  const readers = new Map<Socket, Reader>();
  server.on("connection", (socket: Socket) => {
    if (readers.size >= maxConnections) {
      const victim = leastUseful(readers.keys()) ?? socket;
      readers.delete(victim);
      victim.destroy();
      if (victim === socket) return;
    }
    readers.set(socket, new Reader(socket, rate));
    socket.once("close", () => readers.delete(socket));
  });
  // Not before: a server that cannot listen never closes, and a timer would keep the process.
  server.once("listening", () => {
    const timer = setInterval(() => {
      for (const [socket, reader] of readers) if (reader.isTooSlow()) socket.destroy();
    }, rate.stepMs);
    server.once("close", () => clearInterval(timer));
  });
}

/**
 * The connection to close: the oldest idle one without a valid key, else the oldest busy one without, else the oldest
 * idle one with a key. Null when every connection has a request with a valid key: those are never closed.
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

/** The other side of a connection, as the reader of responses. */
class Reader {
  readonly #socket: Socket;
  readonly #rate: ReaderRate;
  #takenBytes = 0;
  #savedBytes: number;

  constructor(socket: Socket, rate: ReaderRate) {
    this.#socket = socket;
    this.#rate = rate;
    this.#savedBytes = rate.firstBytes;
  }

  /** Called once in each step. */
  isTooSlow(): boolean {
    const { takenBytes, waitingBytes } = outgoing(this.#socket);
    const movedBytes = takenBytes - this.#takenBytes;
    this.#takenBytes = takenBytes;
    const { firstBytes, savedBytes, bytesPerStep } = this.#rate;
    // Nothing waits for the reader: earlier slowness is forgotten.
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
