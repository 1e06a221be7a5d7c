import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../config/schema.ts";
import { LOCAL_STORAGE, type StoragePlaces } from "../config/storage-places.ts";
import { DATA_FILES, type ProviderIdentity } from "../contract/data-directory.ts";
import {
  type CallSums,
  type ProviderReport,
  reportProviders,
  splitTroubles,
} from "../domain/health/calls.ts";
import { disabledBy, EVERY_MODEL, type ProviderTrouble } from "../domain/health/provider-health.ts";
import { type ImageProvider, ProviderError, type Trouble } from "../domain/ports/image-provider.ts";
import { poolThreads, secretOf } from "../environment.ts";
import { Decoding } from "../imaging/decoding.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { linkSignals } from "../kernel/signals.ts";
import { createProviders } from "../providers/registry.ts";
import { withApiCode } from "../server/http/errors.ts";
import { openStorage } from "./storage/open-storage.ts";

export { type CallSums, type ProviderReport, type ProviderTrouble, splitTroubles, type Trouble };

const PROBE_SECONDS = 10;

/** The result of asking an upstream for something that costs nothing. `trouble`: null when it names none. */
export type Probe =
  | { isOk: true }
  | {
      isOk: false;
      trouble: Trouble | null;
      message: string;
      /** It was not asked: the running service has its key, and this process has not. */
      isKeyElsewhere?: true;
    };

/** The providers of the service that runs on a data directory. */
export interface RunningProviders {
  identities: readonly ProviderIdentity[];
  /** The troubles that the service has met. */
  troubles: readonly ProviderTrouble[];
  /** Lets the service ask a provider again at once. */
  resume(name: string): Promise<void>;
}

/** The configured providers beside the service that may run on the data directory. */
export interface ProviderStatus {
  /** In the order of the configuration. */
  report(): Promise<ProviderReport[]>;
  /** Asks each upstream for something that costs nothing, for at most 10 s. Drawings always work. Rejects with the signal's reason. */
  ask(signal: AbortSignal): Promise<Map<string, Probe>>;
  /** The same; and the running service asks a provider that works again at once. */
  probe(signal: AbortSignal): Promise<Map<string, Probe>>;
  close(): Promise<void>;
}

/**
 * Opens the configured providers with what the data directory counts of them, and what the service that runs on it has met. A missing
 * directory stays missing.
 */
export async function openProviderStatus(options: {
  config: Config;
  directory: string;
  /** Default: SQLite and files of the directory. */
  storage?: StoragePlaces;
  /** The running service, if its providers are the configured ones. Default: none runs. */
  running?: RunningProviders | null;
  /** For tests. Default: the real clock. */
  clock?: Clock;
}): Promise<ProviderStatus> {
  const { config, directory, storage = LOCAL_STORAGE, running = null } = options;
  const own = await createProviders(config.providers, {
    clock: options.clock ?? systemClock,
    simulate: config.simulate,
    decoding: new Decoding(poolThreads()),
    secret: (name) => secretOf(name),
  });
  const providers = own.map((each) => asRunning(each, running?.identities ?? []));
  const isThere = storage.database.kind === "postgres" || existsSync(join(directory, DATA_FILES.database));
  const given = options.clock ? { clock: options.clock } : {};
  const data = isThere ? await openStorage(storage, { directory, ...given }).catch(rethrow) : null;
  const clock = options.clock ?? data?.clock ?? systemClock;
  const resumed = new Set<string>();
  const ask = async (signal: AbortSignal) =>
    new Map(
      await Promise.all(
        own.map(async (each, at) => {
          const isKeyElsewhere = !disabledBy(providers[at] ?? each);
          return [each.name, await probe(each, isKeyElsewhere, signal)] as const;
        }),
      ),
    );
  return {
    report: () =>
      reportProviders(providers, {
        read: data?.stores.read ?? null,
        nowMs: clock.nowMs(),
        troublesOf: (provider) => troublesOf(provider, resumed.has(provider.name) ? [] : running?.troubles),
      }),
    ask,
    probe: async (signal) => {
      const probes = await ask(signal);
      for (const [at, { name, upstream }] of own.entries()) {
        // The key of the running service may be another one.
        const isSame = upstream?.fingerprint === providers[at]?.upstream?.fingerprint;
        if (!running || !probes.get(name)?.isOk || !isSame) continue;
        await running.resume(name);
        resumed.add(name);
      }
      return probes;
    },
    close: async () => {
      for (const provider of providers) await provider.close();
      await data?.close();
    },
  };
}

function rethrow(error: unknown): never {
  throw withApiCode(error);
}

function troublesOf(provider: ImageProvider, known: readonly ProviderTrouble[] = []): ProviderTrouble[] {
  const disabled = disabledBy(provider);
  if (disabled) return [{ ...disabled, model: EVERY_MODEL, failures: 0, isOver: false }];
  return known.filter((trouble) => trouble.provider === provider.name);
}

/** Returns a provider as the running service has it, which may have another key, or one that is missing here. */
function asRunning(provider: ImageProvider, running: readonly ProviderIdentity[]): ImageProvider {
  const theirs = running.find(({ name }) => name === provider.name);
  if (!theirs?.fingerprint || !provider.upstream) return provider;
  const { fingerprint, disabled = null } = theirs;
  return { ...provider, upstream: { ...provider.upstream, fingerprint, disabled } };
}

async function probe(provider: ImageProvider, isKeyElsewhere: boolean, signal: AbortSignal): Promise<Probe> {
  const { upstream } = provider;
  const disabled = disabledBy(provider);
  if (disabled) {
    const { trouble, message } = disabled;
    if (!isKeyElsewhere) return { isOk: false, trouble, message };
    const here = `${message} here, and the running service has it`;
    return { isOk: false, trouble, message: here, isKeyElsewhere };
  }
  const late = AbortSignal.timeout(PROBE_SECONDS * 1000);
  const linked = linkSignals(signal, late);
  try {
    await upstream?.probe(linked.signal);
    return { isOk: true };
  } catch (error) {
    signal.throwIfAborted();
    if (late.aborted)
      return { isOk: false, trouble: "unreachable", message: `No answer within ${PROBE_SECONDS} s.` };
    if (!(error instanceof ProviderError)) throw error;
    return { isOk: false, trouble: error.trouble, message: error.message };
  } finally {
    linked.unlink();
  }
}
