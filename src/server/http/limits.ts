import { isIP } from "node:net";
import type { Request } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isLoopback } from "../../kernel/loopback.ts";

/** Counts the work that runs for each key. */
class PerKeyCount {
  readonly #taken = new Map<string, number>();

  takenBy(keyId: string): number {
    return this.#taken.get(keyId) ?? 0;
  }

  /** Counts one more. Returns the function that takes it off again. */
  take(keyId: string): () => void {
    this.#taken.set(keyId, this.takenBy(keyId) + 1);
    let isFree = false;
    return () => {
      if (isFree) return;
      isFree = true;
      const left = this.takenBy(keyId) - 1;
      if (left > 0) this.#taken.set(keyId, left);
      else this.#taken.delete(keyId);
    };
  }
}

const RETRY_AFTER_MS = 1000;

/** Counts the downloads that run for each key, so that one caller cannot take all slots. */
export class DownloadSlots {
  readonly #perKey: number;
  readonly #slots = new PerKeyCount();

  constructor(perKey: number) {
    this.#perKey = perKey;
  }

  /** Takes a slot. Returns the function that releases it. Throws `BATCH_IMAGE_DOWNLOAD_LIMITED` when none is free. */
  take(keyId: string): () => void {
    const taken = this.#slots.takenBy(keyId);
    if (taken < this.#perKey) return this.#slots.take(keyId);
    const message = `This key has ${taken} downloads running; ${this.#perKey} are allowed at once.`;
    throw new ImgbatchError("BATCH_IMAGE_DOWNLOAD_LIMITED", message, { retryAfterMs: RETRY_AFTER_MS });
  }
}

const WINDOW_MS = 60_000;
const MOST_COUNTERS = 10_000;

/** The network that an address stands for: an address of IPv4, and the first 64 bits of one of IPv6, which one caller has whole. */
function networkOf(address: string): string {
  const plain = address.replace(/%.*$/, "").replace(/^::ffff:(?=\d+\.)/i, "");
  if (isIP(plain) !== 6) return plain;
  const [head = "", tail] = plain.split("::");
  const [first, last] = [head, tail ?? ""].map((part) => part.split(":").filter((group) => group !== ""));
  const missing = tail === undefined ? 0 : Math.max(0, 8 - (first?.length ?? 0) - (last?.length ?? 0));
  const groups = [...(first ?? []), ...Array.from({ length: missing }, () => "0"), ...(last ?? [])];
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}

/** The default, for callers from other machines only. */
const REMOTE_DEFAULT = 30;

/**
 * Counts wrong keys by address and minute, to prevent fast guessing. It never stops a valid key. `perMinute` 0 means 30,
 * and no limit for callers on this machine unless `countsLoopback`: behind a proxy every caller may seem to be on this
 * machine. Around the end of a minute an address may show twice as many: a key cannot be guessed with so few.
 */
export class FailedAuthLimit {
  readonly #perMinute: number;
  readonly #clock: Clock;
  readonly #countsLoopback: boolean;
  readonly #failures = new Map<string, number>();
  #windowStartMs = 0;

  constructor(perMinute: number, clock: Clock, { countsLoopback }: { countsLoopback: boolean }) {
    this.#perMinute = perMinute;
    this.#clock = clock;
    this.#countsLoopback = countsLoopback;
  }

  /** Notes a wrong key. Throws `RATE_LIMITED` when the address has shown too many in this minute. */
  note(address: string): void {
    if (this.#perMinute === 0 && !this.#countsLoopback && isLoopback(address)) return;
    const limit = this.#perMinute || REMOTE_DEFAULT;
    const nowMs = this.#clock.nowMs();
    const ageMs = nowMs - this.#windowStartMs;
    // A clock that was set back begins a new minute, too.
    if (ageMs < 0 || ageMs >= WINDOW_MS) {
      this.#failures.clear();
      this.#windowStartMs = nowMs;
    }
    const network = networkOf(address);
    // Addresses beyond so many share a counter: an attacker has more of them than there is memory.
    const counter = this.#failures.has(network) || this.#failures.size < MOST_COUNTERS ? network : "others";
    const failures = (this.#failures.get(counter) ?? 0) + 1;
    this.#failures.set(counter, failures);
    if (failures <= limit) return;
    const retryAfterMs = Math.max(1, this.#windowStartMs + WINDOW_MS - nowMs);
    throw new ImgbatchError("RATE_LIMITED", "Too many wrong keys from this address.", { retryAfterMs });
  }
}

/**
 * The address that a wrong key counts for: the caller that a trusted proxy names, else the other end of the connection;
 * also when the proxy's text is not an address.
 */
export function callerAddress({ ip, socket }: Pick<Request, "ip" | "socket">): string {
  return ip !== undefined && isIP(ip) > 0 ? ip : (socket.remoteAddress ?? "");
}
