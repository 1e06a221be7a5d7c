import type { IncomingMessage } from "node:http";
import { ImgbatchError } from "../contract/errors.ts";
import { formatBytes } from "../kernel/text.ts";
import type { BodyPlace } from "./body-budget.ts";
import { type Pace, watchPace } from "./pace.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** Sizes of the pieces that a body is kept in. The system commits the last kind bit by bit, and takes it back whole. */
const PIECE_BYTES = [64 * KIB, MIB, 4 * MIB, 32 * MIB] as const;
const BUSY_RETRY_MS = 5000;

/** How long a body waits for memory before its sender is told to come back later. */
export interface BodyPace extends Pace {
  waitMs: number;
}

/** 8 KiB/s at any time, and 192 MiB over 2 Mbit/s as a whole. */
export const BODY_PACE: BodyPace = {
  windowMs: 20_000,
  bytesPerWindow: 160 * KIB,
  deadlineMs: 15 * 60_000,
  waitMs: 30_000,
};

/**
 * Reads a body to its end, in pieces that own their memory. What has no place in the budget is not
 * read, so the sender has to wait. Throws `REQUEST_TOO_LARGE`; `REQUEST_TIMEOUT` for a sender that is too slow; and
 * `RATE_LIMITED` when other bodies leave no memory for too long.
 * Rules: API-5, LOAD-1, LOAD-2.
 */
export function readBody(
  request: IncomingMessage,
  options: { maxBytes: number; placeFor(size: number): BodyPlace; pace: BodyPace },
): Promise<Uint8Array<ArrayBuffer>[]> {
  const pieces = new Pieces();
  if (request.readableEnded) return Promise.resolve([]);
  if (request.destroyed) return Promise.reject(new Error("the request ended early"));
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      watch.stop();
      clearTimeout(waitTimer);
      request.off("data", onData);
      request.off("end", onEnd);
      request.off("error", onBroken);
      request.off("close", onBroken);
      settle();
    };
    const onData = (chunk: Buffer) => {
      watch.moved(chunk.length);
      const size = pieces.size + chunk.length;
      if (size > options.maxBytes) return end(() => reject(tooLarge(options.maxBytes)));
      const wait = options.placeFor(size).take(chunk.length);
      pieces.add(chunk);
      if (wait) waitFor(wait);
    };
    const waitFor = (place: Promise<void>) => {
      request.pause();
      watch.pause();
      waitTimer = setTimeout(() => end(() => reject(busy())), options.pace.waitMs);
      void place.then(() => {
        clearTimeout(waitTimer);
        watch.resume();
        request.resume();
      });
    };
    const onEnd = () => end(() => resolve(pieces.all()));
    const onBroken = (error?: Error) => end(() => reject(error ?? new Error("the request ended early")));
    const watch = watchPace(options.pace, () => end(() => reject(new ImgbatchError("REQUEST_TIMEOUT"))));
    let waitTimer: NodeJS.Timeout | undefined;
    request.on("data", onData);
    request.on("end", onEnd);
    request.on("error", onBroken);
    request.on("close", onBroken);
  });
}

/** Gathers chunks of any size without keeping them: each would hold far more memory than its bytes. */
class Pieces {
  size = 0;
  readonly #full: Uint8Array<ArrayBuffer>[] = [];
  #last = new Uint8Array(0);
  #used = 0;

  add(chunk: Uint8Array): void {
    this.size += chunk.length;
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#used === this.#last.length) this.#grow();
      const part = rest.subarray(0, this.#last.length - this.#used);
      this.#last.set(part, this.#used);
      this.#used += part.length;
      rest = rest.subarray(part.length);
    }
  }

  all(): Uint8Array<ArrayBuffer>[] {
    const last = this.#last.subarray(0, this.#used);
    return this.#used === 0 ? this.#full : [...this.#full, last];
  }

  #grow(): void {
    if (this.#used > 0) this.#full.push(this.#last);
    this.#last = new Uint8Array(PIECE_BYTES[this.#full.length] ?? PIECE_BYTES[3]);
    this.#used = 0;
  }
}

export function tooLarge(maxBytes: number): ImgbatchError {
  return new ImgbatchError("REQUEST_TOO_LARGE", `The request body is larger than ${formatBytes(maxBytes)}.`);
}

function busy(): ImgbatchError {
  const message = "Other requests with large bodies keep the service busy; send it again later.";
  return new ImgbatchError("RATE_LIMITED", message, { retryAfterMs: BUSY_RETRY_MS });
}
