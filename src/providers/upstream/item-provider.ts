import { keyProblemOf, secretVariables } from "../../contract/data-directory.ts";
import { tierOf } from "../../contract/image-formats.ts";
import type { UpstreamEntry } from "../../contract/provider-entries.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  type UpstreamFacts,
} from "../../domain/ports/image-provider.ts";
import { type Clock, timeLimit } from "../../kernel/clock.ts";
import { hideUsedKeys, watchKey } from "../../kernel/hide-keys.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import { linkSignals, unlessAborted } from "../../kernel/signals.ts";
import type { AdapterDeps, UpstreamAdapter } from "./adapter.ts";

/** The time limits of one image by tier, unless the entry has its own. */
const TIER_SECONDS = { "512": 120, "1K": 120, "2K": 180, "4K": 300 } as const;

/**
 * Makes a provider of an adapter: with time limits, a rate, the sizes and model ids of the entry, and without secrets in
 * errors. A secret that is not set disables the provider and nothing else.
 */
export function asItemProvider(
  entry: UpstreamEntry,
  adapter: UpstreamAdapter,
  deps: AdapterDeps,
): ItemProvider {
  const rate = new RequestRate(entry.requestsPerMinute, deps.clock);
  return {
    kind: "item",
    name: entry.name,
    concurrency: entry.concurrency,
    upstream: upstreamFacts(entry, adapter, deps),
    serves: (model) => modelFor(entry, model, model) !== null,
    generate: async (request, signal, onSent = () => {}, onAnswered = () => {}) => {
      await rate.wait(signal);
      return makeInTime(entry, adapter, deps, request, signal, { onSent, onAnswered });
    },
    close: () => adapter.close(),
  };
}

/** The facts of an upstream, from its entry and its adapter. */
export function upstreamFacts(
  entry: UpstreamEntry,
  adapter: Pick<UpstreamAdapter, "address" | "takes" | "probe">,
  deps: AdapterDeps,
): UpstreamFacts {
  const secrets = secretVariables(entry).map((name) => ({ name, value: deps.secret(name) }));
  for (const { value } of secrets) if (value !== null) watchKey(value);
  const missing = secrets.filter(({ value }) => value === null).map(({ name }) => name);
  return {
    type: entry.type,
    identity: `${entry.type} ${adapter.address}`,
    fingerprint: sha256Hex(canonicalJson({ entry, secrets: secrets.map(({ value }) => value) })),
    isFree: entry.free,
    ...("idempotencyKey" in entry && entry.idempotencyKey !== null ? { isRepeatable: true } : {}),
    takes: adapter.takes,
    disabled:
      missing.length === 0
        ? keyProblemOf(entry, deps.secret)
        : `the environment variable ${missing.join(" and ")} is not set`,
    uses: entry.for,
    modelFor: (requested, executed) => modelFor(entry, requested, executed),
    probe: async (signal) => {
      try {
        await adapter.probe(signal);
      } catch (error) {
        throw withoutSecrets(error);
      }
    },
  };
}

/** Returns the upstream's id of a requested model; null when the entry does not serve it. */
export function modelFor({ models }: UpstreamEntry, requested: string, executed: string): string | null {
  if (Array.isArray(models)) {
    const isServed = models.includes("*") || models.includes(executed) || models.includes(requested);
    return isServed ? executed : null;
  }
  return Object.hasOwn(models, requested) ? (models[requested] ?? null) : null;
}

function makeInTime(
  entry: UpstreamEntry,
  adapter: UpstreamAdapter,
  { clock }: AdapterDeps,
  request: ImageRequest,
  signal: AbortSignal,
  { onSent, onAnswered }: { onSent(): void; onAnswered(bytes: number): void },
): Promise<GeneratedImages> {
  const seconds = entry.timeoutSeconds ?? TIER_SECONDS[tierOf(request.options.size)];
  let isSent = false;
  const late = () =>
    new ProviderError("PROVIDER_TIMEOUT", `${entry.name} did not answer within ${seconds} s.`, {
      trouble: isSent ? "ambiguous" : "unreachable",
    });
  const markSent = () => {
    isSent = true;
    onSent();
  };
  return withTimeLimit({ clock, ms: seconds * 1000, late }, signal, (inTime) => {
    const made = adapter.generate(request, inTime, markSent, onAnswered);
    // Nobody takes images that come too late.
    made.then(({ discard }) => (inTime.aborted ? discard?.() : undefined)).catch(() => {});
    return made;
  }).catch((error) => {
    signal.throwIfAborted();
    throw withoutSecrets(error);
  });
}

/** An upstream may repeat a key. Returns the error with all keys hidden, and without its cause. */
export function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof ProviderError)) return error;
  return new ProviderError(error.code, hideUsedKeys(error.message), { ...error, cause: undefined });
}

const MINUTE_MS = 60_000;

/** Lets no more requests start in any minute than an upstream takes. */
export class RequestRate {
  readonly #perMinute: number | null;
  readonly #clock: Clock;
  /** When requests started and will start, in monotonic ms, the earliest first; without those that no longer count. */
  #starts: number[] = [];

  /** `perMinute` null sets no limit. */
  constructor(perMinute: number | null, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /**
   * Resolves when a request may start. Rejects with the signal's reason when aborted before: its place in the minute is
   * free again.
   */
  async wait(signal: AbortSignal): Promise<void> {
    if (this.#perMinute === null) return;
    const nowMs = this.#clock.monotonicMs();
    this.#starts = this.#starts.filter((ms) => ms > nowMs - MINUTE_MS);
    const before = this.#starts.at(-this.#perMinute);
    const startMs = before === undefined ? nowMs : before + MINUTE_MS;
    this.#starts = [...this.#starts, startMs].sort((a, b) => a - b);
    if (startMs <= nowMs) return;
    try {
      await this.#clock.sleep(startMs - nowMs, signal);
    } catch (error) {
      this.#starts.splice(this.#starts.indexOf(startMs), 1);
      throw error;
    }
  }
}

/**
 * Runs a call with a signal that also aborts when its time is over. Rejects with the reason of `signal` when that is
 * aborted, with `late()` when the time is over, else with the error of the call. When the time is over it does not wait for
 * the call, which goes on.
 */
export async function withTimeLimit<T>(
  { clock, ms, late }: { clock: Clock; ms: number; late: () => ProviderError },
  signal: AbortSignal,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const limit = timeLimit(clock, ms, () => over.abort(late()));
  const linked = linkSignals(signal, over.signal);
  try {
    return await unlessAborted(call(linked.signal), over.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    limit.stop();
    linked.unlink();
  }
}
