import type { Config } from "../../config/schema.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { joinFinishes } from "../../domain/batches/finish-item.ts";
import type { Feed } from "../../domain/feed.ts";
import { Uploads } from "../../domain/files/uploads.ts";
import { ProviderHealth } from "../../domain/health/provider-health.ts";
import { Offers } from "../../domain/offers.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { ImageProvider, ItemProvider } from "../../domain/ports/image-provider.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { poolThreads, secretOf } from "../../environment.ts";
import { Decoding } from "../../imaging/decoding.ts";
import { sharpInspector } from "../../imaging/sharp-images.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { readVersion } from "../../kernel/version.ts";
import { createProviders } from "../../providers/registry.ts";
import { lineReaders } from "../../server/surfaces.ts";
import type { WorkerDeps } from "../../workers/deps.ts";
import { Presence, type PresenceFacts } from "../../workers/presence.ts";
import { shareProviders } from "../../workers/provider-slots.ts";
import type { Teardown } from "./teardown.ts";

const HOUR_MS = 3_600_000;
/** How soon the service learns that another process has changed the state of a provider. */
const LOOK_AT_HEALTH_MS = 2000;

/** The parts that the API and the workers of a process share. */
export interface SharedParts {
  /** As the configuration has them. */
  providers: readonly ImageProvider[];
  workerDeps: WorkerDeps;
  /** Those of the providers that are used for real time. */
  realtimeOffers: Offers<ItemProvider>;
  decoding: Decoding;
}

/** The origin of the parts. Without `providers` those of the configuration are made. */
interface PartsOptions {
  config: Config;
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  ids: Ids;
  /** From 0 up to 1; spreads retries. */
  random: () => number;
  feed: Feed;
  log: Log;
  providers?: readonly ImageProvider[] | undefined;
  /** The row by which other processes see this one. */
  presence: Pick<PresenceFacts, "role" | "isAlone">;
  /** See `WorkerDeps`. */
  ending: AbortSignal;
}

/** Makes what the API and the workers share: providers with their health, and the processing of images. */
export async function sharedParts(options: PartsOptions, teardown: Teardown): Promise<SharedParts> {
  const { config, stores, blobs, clock, ids, random, feed, log, ending } = options;
  const decoding = new Decoding(poolThreads());
  const providers =
    options.providers ??
    (await createProviders(config.providers, {
      clock,
      draft: () => blobs.draft(),
      simulate: config.simulate,
      decoding,
      secret: (name) => secretOf(name),
    }));
  teardown.add(async () => {
    for (const provider of providers) await provider.close();
  });
  const shared = shareProviders(providers);
  const health = await ProviderHealth.load({ stores, clock, log }, providers);
  const looking = setInterval(
    () => void health.refresh({ isShared: !options.presence.isAlone }),
    LOOK_AT_HEALTH_MS,
  ).unref();
  teardown.add(() => clearInterval(looking));
  const hasUpstreams = providers.some(({ upstream }) => upstream !== undefined);
  const rates = new Map(config.providers.map((p) => [p.name, p.rateMultiplier]));
  const inspector = sharpInspector(decoding);
  const presence = new Presence(
    { stores, clock, ids, log },
    {
      ...options.presence,
      version: readVersion(),
      providers: options.presence.role === "api" ? [] : shared.forBatches.map(({ name }) => name),
    },
  );
  await presence.join();
  const beating = new AbortController();
  const beats = presence.run(beating.signal);
  teardown.add(async () => {
    beating.abort();
    await beats;
    await presence.leave().catch((error) => log.debug("a worker could not leave", { error: String(error) }));
  });
  return {
    providers,
    decoding,
    realtimeOffers: new Offers(shared.forRealtime, config.models, rates, health, hasUpstreams),
    workerDeps: {
      stores,
      blobs,
      finishes: joinFinishes(stores),
      inspector,
      limits: config.limits,
      lineReaders: lineReaders({ ...config, stores, blobs, inspector, clock }),
      models: config.models,
      providers: shared.forBatches,
      offers: new Offers(shared.forBatches, config.models, rates, health, hasUpstreams),
      health,
      presence,
      ending,
      outageMs: config.limits.outageHours * HOUR_MS,
      uploads: new Uploads({ stores, blobs, clock }, { ...FIXED_LIMITS, ...config.limits }),
      clock,
      ids,
      random,
      feed,
      log,
      outputRetentionMs: config.retention.outputHours * HOUR_MS,
    },
  };
}
