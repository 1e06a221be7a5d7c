import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import type { Role } from "../config/roles.ts";
import type { Config } from "../config/schema.ts";
import { LOCAL_STORAGE, type StoragePlaces } from "../config/storage-places.ts";
import type { Credentials } from "../contract/data-directory.ts";
import { Feed, feedLog } from "../domain/feed.ts";
import type { ProviderHealth } from "../domain/health/provider-health.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { Stores } from "../domain/ports/stores.ts";
import { Realtime } from "../domain/realtime/generate.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { removePartialFiles } from "../kernel/files/durable-file.ts";
import { type Ids, randomIds } from "../kernel/ids.ts";
import { type Log, silentLog } from "../kernel/log.ts";
import { identitiesOf } from "../providers/registry.ts";
import { buildApp } from "../server/app.ts";
import type { ApiDeps } from "../server/deps.ts";
import { withApiCode } from "../server/http/errors.ts";
import { withPathTargets } from "../server/http/host.ts";
import { listen } from "../server/listen.ts";
import { SURFACES, WORKER_SURFACES } from "../server/surfaces.ts";
import { acquireDataLockPatiently } from "../storage/data-lock.ts";
import { storageFailure } from "../storage/disk-trouble.ts";
import { Scheduler } from "../workers/scheduler.ts";
import { signInLinks } from "./console.ts";
import { apiParts } from "./parts/api-part.ts";
import { type LocalAccess, openLocalAccess } from "./parts/local-access.ts";
import { sharedParts } from "./parts/shared-parts.ts";
import { shareChanges } from "./parts/sharing.ts";
import { Teardown } from "./parts/teardown.ts";
import { workOfAll } from "./parts/work-of-all.ts";
import { startWorkers } from "./parts/worker-part.ts";
import { claimBucket } from "./storage/bucket-owner.ts";
import { freeBytesOf, makeDataDirectory } from "./storage/make-data-directory.ts";
import { openStorage } from "./storage/open-storage.ts";

/** How long a process that stops still takes requests beside others: by then their proxy has seen that it is not ready. */
const DRAIN_MS = 5000;

/** A service that keeps everything in its data directory. */
export interface LocalServiceOptions {
  config: Config;
  dataDirectory: string;
  /** Port 0 takes a free one. */
  address: { host: string; port: number };
  /** Whether `credentials.json` names this service's address. False for a service that ends with its command. */
  announceUrl: boolean;
  /** Without workers the service shows and serves existing batches, and takes none. */
  workers: boolean;
  /**
   * Real money that the local account gets for this start, in micro-dollars. Consent in requests does not count then. Default:
   * none, and consent counts.
   */
  budgetMicroUsd?: number;
  /** `feed`: log lines go to the feed alone, for a live view. */
  log: Log | "feed";
  /** For tests. Defaults: the clock of the storage, real ids, random numbers, configured providers and a new feed. */
  clock?: Clock;
  ids?: Ids;
  random?: () => number;
  providers?: readonly ImageProvider[];
  feed?: Feed;
}

export interface ServiceOptions extends LocalServiceOptions {
  /** Where the data is kept. In a shared database, keys are made by `imgbatch admin keys create` alone. */
  storage: StoragePlaces;
  /** The part that this process takes. Others than `all` need a database and a bucket that others share. */
  role: Role;
  /** For tests. False: what other processes do is found by looking alone. Default: true. */
  usesNotices?: boolean;
}

export interface Service {
  url: string;
  /** Path of the file with the key for clients on this machine; null with a shared database. */
  credentialsFile: string | null;
  credentials: Credentials | null;
  feed: Feed;
  /**
   * Aborted with `STORAGE_FAILED` when the disk fails under the database. Nothing is written after that, and the owner
   * must close the service and end.
   */
  failed: AbortSignal;
  /** The load of this process now. `paid`: the requests that a stop waits for. */
  queue(): { running: number; paid: number; slots: number; isPaused: boolean };
  /** The state of its providers. */
  health: ProviderHealth;
  /** Makes a link that signs the owner of this machine in to the web console, once; null where there is no console. */
  signInLink: (() => Promise<string>) | null;
  /**
   * Opens the API on a private address of this machine for the live view of this process: with the key, it shows and manages
   * the batches of all keys.
   */
  openLiveView(): Promise<{ baseUrl: string; apiKey: string; startedAtMs: number; providers: string | null }>;
  /**
   * Begins no more work for batches, and stops in the reverse order of the start: requests, workers, files. After the
   * grace, nothing waits any more for a shared database that is away, except the outcome of an item that was claimed for a paid upstream.
   * With `drains` (the default), one of several processes that take requests first says that it is not ready, and still
   * answers for some seconds, at most for half of the grace.
   */
  close(graceMs: number, drains?: boolean): Promise<void>;
}

export interface LocalService extends Service {
  credentialsFile: string;
  credentials: Credentials;
}

/**
 * Starts a service, or the part of one that `role` names. The data directory belongs to this process: with a shared
 * database it holds bytes on their way to the bucket. Throws `DATA_DIRECTORY_IN_USE` when another process owns it,
 * `STORAGE_FAILED` when its disk is full or refuses, or when the database or the bucket cannot be reached, and
 * `INVALID_CONFIG` for the bucket of another database.
 */
export async function startService(options: LocalServiceOptions): Promise<LocalService>;
export async function startService(options: ServiceOptions): Promise<Service>;
export async function startService(options: LocalServiceOptions & Partial<ServiceOptions>): Promise<Service> {
  const { config, dataDirectory, storage = LOCAL_STORAGE, role = "all" } = options;
  const isShared = storage.database.kind === "postgres";
  const ids = options.ids ?? randomIds;
  const feed = options.feed ?? new Feed();
  const log = options.log === "feed" ? feedLog(feed, options.clock ?? systemClock) : options.log;
  const teardown = new Teardown();
  const [failing, ending, hurrying] = [new AbortController(), new AbortController(), new AbortController()];
  // Everything that waits for the database listens to it, and Node would warn of the eleventh listener.
  setMaxListeners(0, hurrying.signal);
  const onBroken = (cause: Error) => {
    const error = storageFailure(dataDirectory, cause);
    log.error("the database cannot be used any more; stopping", { error: error.message });
    failing.abort(error);
  };
  try {
    await makeDataDirectory(dataDirectory);
    teardown.add(await acquireDataLockPatiently(dataDirectory, systemClock));
    await removePartialFiles(dataDirectory);
    const opened = await openStorage(storage, {
      directory: dataDirectory,
      ...(options.clock ? { clock: options.clock } : {}),
      onBroken,
      hurry: hurrying.signal,
    });
    const { stores, blobs } = opened;
    const clock = options.clock ?? opened.clock;
    teardown.add(() => opened.close());
    for (const { message, advice } of opened.warnings) log.warn(message, { advice });
    await claimBucket(storage, opened);
    await blobs.removeDrafts();

    const random = options.random ?? Math.random;
    const withWorkers = role !== "api" && options.workers && config.features.workers;
    const presence = { role: withWorkers ? role : "api", isAlone: !isShared } as const;
    const sources = { config, stores, blobs, clock, ids, random, feed, log, presence, ending: ending.signal };
    const parts = await sharedParts({ ...sources, providers: options.providers }, teardown);
    const { workerDeps, providers } = parts;
    // A command with a service of its own gives the reason itself.
    for (const { name, upstream } of options.announceUrl ? providers : [])
      if (upstream?.disabled)
        log.warn("a provider is disabled", { provider: name, reason: upstream.disabled });
    const scheduler = new Scheduler(workerDeps);
    const realtime = new Realtime({
      ...workerDeps,
      offers: parts.realtimeOffers,
      timeoutMs: config.limits.realtimeTimeoutSeconds * 1000,
      rate: config.limits,
    });
    const { usesNotices = true } = options;
    const callWorkers = isShared
      ? shareChanges(opened, workerDeps, scheduler, { usesNotices, teardown })
      : () => {};
    const secret = randomBytes(32).toString("base64url");
    const onBatchCreated: ApiDeps["onBatchCreated"] = (batch) => {
      feed.publish({ type: "batch", batchId: batch.id, status: "queued" });
      scheduler.wake(batch.id, batch);
      callWorkers();
    };
    let access: LocalAccess | null = null;
    const apiDeps: ApiDeps = {
      ...apiParts(parts, config, options.address.host),
      ...workOfAll(workerDeps),
      isLocalKey: (keyId) => keyId === access?.localKeyId,
      isOwnerKey: (keyId) => keyId === access?.ownerKeyId,
      operatorToken: null,
      facts: { dataDirectory, startedAtMs: clock.nowMs() },
      setPaused: (isPaused) => scheduler.setPaused(isPaused),
      realtime,
      requestLog: options.log === "feed" ? silentLog : log,
      workersRunning: () =>
        (scheduler.isRunning && workerDeps.presence.isFresh) ||
        (role !== "worker" && workerDeps.presence.hasWorkers),
      workersExpected: withWorkers || (isShared && config.features.workers),
      freeDiskBytes: () => freeBytesOf(dataDirectory),
      askBucket: storage.blobs.kind === "s3" ? () => blobs.list("ready/") : null,
      isStopping: () => ending.signal.aborted,
      secret,
      cancel: (batchId) => scheduler.cancel(batchId, callWorkers),
      onBatchCreated,
    };
    const app = buildApp(apiDeps, role === "worker" ? WORKER_SURFACES : SURFACES);
    let graceMs = 0;
    // A process without workers may be telling upstreams to cancel.
    teardown.add(() => scheduler.stop(graceMs, failing.signal.aborted));
    if (withWorkers) await startWorkers(scheduler, config, workerDeps, teardown);
    const listening = await listen(withPathTargets(app.listener), options.address, { log, http: app.http });
    teardown.add(async () => {
      const startMs = clock.monotonicMs();
      await listening.close(graceMs, () => realtime.stop());
      // Requests with an idempotency key may be at work whose callers have left.
      await realtime.stop(Math.max(0, graceMs - (clock.monotonicMs() - startMs)));
    });
    teardown.add(() => apiDeps.events.close());
    if (!isShared) {
      const identities = identitiesOf(config.providers, providers);
      const facts = { url: listening.url, workers: withWorkers, providers: identities, secret };
      access = await openLocalAccess({ ...options, facts }, { stores, clock, ids, log }, teardown);
    }
    return {
      url: listening.url,
      credentialsFile: access?.credentialsFile ?? null,
      credentials: access?.credentials ?? null,
      feed,
      failed: failing.signal,
      queue: () => scheduler.load,
      health: workerDeps.health,
      signInLink: signInLinks(config, apiDeps.secrets, listening.url, access?.ownerKeyId ?? null),
      openLiveView: async () => {
        teardown.add(logFailures(feed, log, stores));
        const operatorToken = randomBytes(32).toString("base64url");
        const view = buildApp({ ...apiDeps, operatorToken, isOwnerKey: () => true, isLocalKey: () => false });
        const opened = await listen(view.listener, { host: "127.0.0.1", port: 0 }, { http: view.http });
        teardown.add(() => opened.close(0));
        const names = providers.map(({ name }) => name).join(", ") || null;
        const { startedAtMs } = apiDeps.facts;
        return { baseUrl: opened.url, apiKey: operatorToken, startedAtMs, providers: names };
      },
      close: async (grace, drains = true) => {
        ending.abort();
        // Otherwise each step below would wait for a database that is away, one after the other.
        const stopped = new AbortController();
        systemClock.sleep(grace, stopped.signal).then(
          () => hurrying.abort(),
          () => {},
        );
        const drainMs = drains && isShared && role !== "worker" ? Math.min(DRAIN_MS, grace / 2) : 0;
        try {
          await systemClock.sleep(drainMs);
          graceMs = grace - drainMs;
          await teardown.run();
        } catch (error) {
          throw withApiCode(storageFailure(dataDirectory, error));
        } finally {
          stopped.abort();
        }
      },
    };
  } catch (error) {
    await teardown.run();
    throw withApiCode(storageFailure(dataDirectory, error));
  }
}

/** A person could not read more in a second. */
const FAILURES_AT_ONCE = 10;

/** Writes a line to the log for each image that could not be made. Returns the function that stops it. */
function logFailures(feed: Feed, log: Log, { read }: Stores): () => void {
  let atWork = 0;
  const tell = async (batchId: string, customId: string) => {
    if (atWork >= FAILURES_AT_ONCE) return;
    atWork++;
    try {
      const [item, batch] = [
        await read.items.byCustomId(batchId, customId),
        await read.batches.byId(batchId),
      ];
      if (item?.error == null) return;
      const { code, message } = item.error;
      log.warn(`${customId} failed, ${code}: ${message} (“${batch?.taskName ?? batchId}”)`);
    } finally {
      atWork--;
    }
  };
  return feed.subscribe((event) => {
    const failed =
      event.type === "elsewhere"
        ? event.failed
        : event.type === "item" && event.status === "failed"
          ? [event.customId]
          : [];
    for (const customId of failed) if ("batchId" in event) tell(event.batchId, customId).catch(() => {});
  });
}
