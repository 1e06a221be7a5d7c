import { randomBytes } from "node:crypto";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";

export interface SecretOptions {
  lifeMs: number;
  /** The most secrets of one key. A further one ends the oldest. */
  mostPerKey: number;
  /** The beginning of each secret. Default: none. */
  prefix?: string;
}

/** Random secrets that each stand for something of a key for a time. */
export interface SecretStore<T extends { keyId: string }> {
  issue(value: T): Answer<{ secret: string; expiresAtMs: number }>;
  /** Null for an unknown secret, and for one whose time is over. */
  find(secret: string): Answer<{ value: T; expiresAtMs: number } | null>;
  /** Returns what a secret stands for, and ends it: only one call gets it. */
  take(secret: string): Answer<T | null>;
  end(secret: string): Answer<void>;
}

/** Known at once, or when the database has answered. */
type Answer<T> = T | Promise<T>;

/** Secrets of this process alone. They are kept in memory, as hashes. */
export class TimedSecrets<T extends { keyId: string }> implements SecretStore<T> {
  readonly #clock: Clock;
  readonly #options: SecretOptions;
  /** By hash, the oldest first. */
  readonly #held = new Map<string, { value: T; expiresAtMs: number }>();

  constructor(clock: Clock, options: SecretOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  issue(value: T): { secret: string; expiresAtMs: number } {
    const { lifeMs, mostPerKey, prefix = "" } = this.#options;
    this.#dropExpired();
    const ofKey = [...this.#held].filter(([, held]) => held.value.keyId === value.keyId);
    for (const [hash] of ofKey.slice(0, Math.max(0, ofKey.length + 1 - mostPerKey))) this.#held.delete(hash);
    const secret = prefix + randomBytes(32).toString("base64url");
    const expiresAtMs = this.#clock.nowMs() + lifeMs;
    this.#held.set(sha256Hex(secret), { value, expiresAtMs });
    return { secret, expiresAtMs };
  }

  /** Null for an unknown secret, and for one whose time is over. */
  find(secret: string): { value: T; expiresAtMs: number } | null {
    // Most credentials are API keys: no hash is made of them here.
    if (!secret.startsWith(this.#options.prefix ?? "")) return null;
    const held = this.#held.get(sha256Hex(secret));
    return held && held.expiresAtMs > this.#clock.nowMs() ? held : null;
  }

  /** Returns what a secret stands for, and ends it. */
  take(secret: string): T | null {
    const held = this.find(secret);
    this.end(secret);
    return held?.value ?? null;
  }

  end(secret: string): void {
    this.#held.delete(sha256Hex(secret));
  }

  #dropExpired(): void {
    const nowMs = this.#clock.nowMs();
    for (const [hash, { expiresAtMs }] of this.#held) if (expiresAtMs <= nowMs) this.#held.delete(hash);
  }
}
