import { randomBytes } from "node:crypto";
import type { Stores, TimedSecretRecord } from "../../domain/ports/stores.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";

interface SecretOptions {
  lifeMs: number;
  /** The most secrets of one key. A further one ends the oldest. */
  mostPerKey: number;
  /** The beginning of each secret. Default: none. */
  prefix?: string;
}

/** The value of a secret: the key that it stands for, and the batch of a ticket. */
interface StoredValue {
  keyId: string;
  batchId?: string;
}

/** Random secrets, each of which grants something to a key for a time. The database has their hashes. */
class TimedSecrets<T extends StoredValue> {
  readonly #deps: { stores: Stores; clock: Clock };
  readonly #kind: TimedSecretRecord["kind"];
  readonly #options: SecretOptions;

  constructor(
    deps: { stores: Stores; clock: Clock },
    kind: TimedSecretRecord["kind"],
    options: SecretOptions,
  ) {
    this.#deps = deps;
    this.#kind = kind;
    this.#options = options;
  }

  /** Makes a secret. */
  async issue(value: T) {
    const { keyId, batchId }: StoredValue = value;
    const { lifeMs, mostPerKey, prefix = "" } = this.#options;
    const { stores, clock } = this.#deps;
    const secret = prefix + randomBytes(32).toString("base64url");
    const expiresAtMs = clock.nowMs() + lifeMs;
    const record = {
      id: sha256Hex(secret),
      kind: this.#kind,
      apiKeyId: keyId,
      batchId: batchId ?? null,
      expiresAtMs,
    };
    await stores.write(async (tx) => {
      await tx.lock("key", keyId);
      await tx.timedSecrets.removeExpired(clock.nowMs());
      const ofKey = await tx.timedSecrets.ofKey(this.#kind, keyId);
      for (const { id } of ofKey.slice(0, Math.max(0, ofKey.length + 1 - mostPerKey)))
        await tx.timedSecrets.take(id);
      await tx.timedSecrets.insert(record);
    });
    return { secret, expiresAtMs };
  }

  /** Null for an unknown secret, and for one whose time is over. */
  async find(secret: string) {
    if (!this.#mayBeOurs(secret)) return null;
    return this.#valid(await this.#deps.stores.read.timedSecrets.find(sha256Hex(secret)));
  }

  /** Returns what a secret stands for, and ends it: only one call gets it. */
  async take(secret: string) {
    if ((await this.find(secret)) === null) return null;
    const taken = await this.#deps.stores.write((tx) => tx.timedSecrets.take(sha256Hex(secret)));
    return this.#valid(taken)?.value ?? null;
  }

  async end(secret: string): Promise<void> {
    await this.#deps.stores.write((tx) => tx.timedSecrets.take(sha256Hex(secret)));
  }

  /** Most credentials are API keys: they need no query here. */
  #mayBeOurs(secret: string): boolean {
    return secret.startsWith(this.#options.prefix ?? "");
  }

  #valid(record: TimedSecretRecord | null): { value: T; issuedAtMs: number } | null {
    if (record === null || record.kind !== this.#kind) return null;
    const { apiKeyId: keyId, batchId, expiresAtMs } = record;
    if (expiresAtMs <= this.#deps.clock.nowMs()) return null;
    const value: StoredValue = batchId === null ? { keyId } : { keyId, batchId };
    return { value: value as T, issuedAtMs: expiresAtMs - this.#options.lifeMs };
  }
}

const MINUTE_MS = 60_000;

/** The secrets by which a person uses the service from a browser. All its processes know them, also after a restart. */
export function consoleSecrets(deps: { stores: Stores; clock: Clock }) {
  return {
    /** A code buys a session, once, within 10 minutes. */
    codes: new TimedSecrets<{ keyId: string }>(deps, "code", { lifeMs: 10 * MINUTE_MS, mostPerKey: 10 }),
    /** The token of a session works like its key for 12 hours. */
    sessions: new TimedSecrets<{ keyId: string }>(deps, "session", {
      lifeMs: 12 * 60 * MINUTE_MS,
      mostPerKey: 100,
      // The prefix of a key: whatever hides keys in logs and messages hides tokens, too.
      prefix: "imgb_session_",
    }),
    /** A ticket downloads the ZIP of one batch, once, within a minute. */
    tickets: new TimedSecrets<{ keyId: string; batchId: string }>(deps, "ticket", {
      lifeMs: MINUTE_MS,
      mostPerKey: 100,
    }),
  };
}
