import { secretVariables, type UpstreamEntry } from "../../contract/provider-entries.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  type UpstreamFacts,
} from "../../domain/ports/image-provider.ts";
import { hideUsedKeys, watchKey } from "../../kernel/api-keys.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json/canonical-json.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { AdapterDeps, UpstreamAdapter } from "./adapter.ts";
import { nearestSize } from "./nearest-size.ts";
import { RequestRate } from "./request-rate.ts";

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
    generate: async (request, signal, onSent = () => {}) => {
      await rate.wait(signal);
      return withTimeLimit(entry, adapter, deps, request, signal, onSent);
    },
    close: () => adapter.close(),
  };
}

function upstreamFacts(entry: UpstreamEntry, adapter: UpstreamAdapter, deps: AdapterDeps): UpstreamFacts {
  const secrets = secretVariables(entry).map((name) => ({ name, value: deps.secret(name) }));
  for (const { value } of secrets) if (value !== null) watchKey(value);
  const missing = secrets.filter(({ value }) => value === null).map(({ name }) => name);
  return {
    type: entry.type,
    identity: `${entry.type} ${adapter.address}`,
    fingerprint: sha256Hex(canonicalJson({ entry, secrets: secrets.map(({ value }) => value) })),
    isFree: entry.free,
    takes: adapter.takes,
    disabled: missing.length === 0 ? null : `the environment variable ${missing.join(" and ")} is not set`,
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

function modelFor({ models }: UpstreamEntry, requested: string, executed: string): string | null {
  if (Array.isArray(models)) {
    const isServed = models.includes("*") || models.includes(executed) || models.includes(requested);
    return isServed ? executed : null;
  }
  return Object.hasOwn(models, requested) ? (models[requested] ?? null) : null;
}

async function withTimeLimit(
  entry: UpstreamEntry,
  adapter: UpstreamAdapter,
  { clock }: AdapterDeps,
  request: ImageRequest,
  signal: AbortSignal,
  onSent: () => void,
): Promise<GeneratedImages> {
  const seconds = entry.timeoutSeconds ?? TIER_SECONDS[request.tier];
  const late = new AbortController();
  const done = new AbortController();
  let isSent = false;
  const timeout = () =>
    new ProviderError("PROVIDER_TIMEOUT", `${entry.name} did not answer within ${seconds} s.`, {
      trouble: isSent ? "ambiguous" : "unreachable",
    });
  clock.sleep(seconds * 1000, done.signal).then(
    () => late.abort(timeout()),
    () => {},
  );
  const linked = linkSignals(signal, late.signal);
  const size = entry.sizes === null ? request.size : nearestSize(entry.sizes, request.size);
  try {
    return await adapter.generate({ ...request, size }, linked.signal, () => {
      isSent = true;
      onSent();
    });
  } catch (error) {
    signal.throwIfAborted();
    throw withoutSecrets(late.signal.aborted ? late.signal.reason : error);
  } finally {
    done.abort();
    linked.unlink();
  }
}

/** An upstream may repeat a key. Returns the error with all keys hidden, and without its cause. */
function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof ProviderError)) return error;
  return new ProviderError(error.code, hideUsedKeys(error.message), { ...error, cause: undefined });
}
