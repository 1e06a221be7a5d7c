import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Config } from "../config/schema.ts";
import { type Credentials, DATA_FILES } from "../contract/data-directory.ts";
import { topUpReal } from "../domain/accounts.ts";
import { dropOutputs } from "../domain/batches/delete-outputs.ts";
import { deleteRecord } from "../domain/batches/delete-record.ts";
import { retryFailed } from "../domain/batches/retry-failed.ts";
import { Feed } from "../domain/feed.ts";
import { feedLog } from "../domain/feed-log.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import { Realtime } from "../domain/realtime/generate.ts";
import { toPixels } from "../imaging/pixels.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { removePartialFiles } from "../kernel/files/durable-file.ts";
import { type Ids, randomIds, sha256Hex } from "../kernel/ids.ts";
import { type Log, silentLog } from "../kernel/log.ts";
import { identitiesOf } from "../providers/registry.ts";
import { buildExpressApp } from "../server/app.ts";
import { withPathTargets } from "../server/connections/path-targets.ts";
import type { ApiDeps } from "../server/deps.ts";
import { listen } from "../server/listen.ts";
import { withApiCode } from "../server/middleware/errors.ts";
import { acquireDataLockPatiently } from "../storage/data-lock.ts";
import { storageFailure } from "../storage/disk-trouble.ts";
import { Scheduler } from "../workers/scheduler.ts";
import { signInLinks } from "./console.ts";
import type { DashboardSourceDeps } from "./dashboard-source.ts";
import { freeBytesOf, makeDataDirectory, openDataDirectory } from "./data-directory.ts";
import { ensureCredentials } from "./local-credentials.ts";
import { apiParts } from "./parts/api-part.ts";
import { sharedParts } from "./parts/shared-parts.ts";
import { Teardown } from "./parts/teardown.ts";
import { startWorkers } from "./parts/worker-part.ts";
import { removeServerFile, writeServerFile } from "./server-file.ts";

export interface ServiceOptions {
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
  /** For tests. Defaults: the real clock, ids, random numbers, configured providers and a new feed. */
  clock?: Clock;
  ids?: Ids;
  random?: () => number;
  providers?: readonly ImageProvider[];
  feed?: Feed;
}

export interface Service {
  url: string;
  /** Path of the file with the key for clients on this machine. */
  credentialsFile: string;
  credentials: Credentials;
  feed: Feed;
  /**
   * Aborted with `STORAGE_FAILED` when the disk fails under the database. Nothing is written after that, and the owner
   * must close the service and end.
   */
  failed: AbortSignal;
  /** Everything that a live view of this service uses. */
  view: DashboardSourceDeps;
  /** Stops in the reverse order of the start: requests, workers, files. */
  close(graceMs: number): Promise<void>;
}

/**
 * Starts the whole service on a data directory. Throws `DATA_DIRECTORY_IN_USE` when another process owns it, and
 * `STORAGE_FAILED` when its disk is full or refuses.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, dataDirectory } = options;
  const clock = options.clock ?? systemClock;
  const ids = options.ids ?? randomIds;
  const feed = options.feed ?? new Feed();
  const log = options.log === "feed" ? feedLog(feed, clock) : options.log;
  const teardown = new Teardown();
  const failing = new AbortController();
  const onBroken = (cause: Error) => {
    const error = storageFailure(dataDirectory, cause);
    log.error("the database cannot be used any more; stopping", { error: error.message });
    failing.abort(error);
  };
  try {
    await makeDataDirectory(dataDirectory);
    teardown.add(await acquireDataLockPatiently(dataDirectory, systemClock));
    await removePartialFiles(dataDirectory);
    const { stores, blobs, close } = await openDataDirectory(dataDirectory, clock, onBroken);
    teardown.add(close);
    await blobs.removeDrafts();

    const random = options.random ?? Math.random;
    const withWorkers = options.workers && config.features.workers;
    const presence = { role: withWorkers ? "all" : "api", isAlone: true } as const;
    const sources = { config, stores, blobs, clock, ids, random, feed, log, presence };
    const parts = await sharedParts({ ...sources, providers: options.providers }, teardown);
    const { workerDeps, providers, decoding } = parts;
    const scheduler = new Scheduler(workerDeps);
    const realtime = new Realtime({
      ...workerDeps,
      offers: parts.realtimeOffers,
      timeoutMs: config.limits.realtimeTimeoutSeconds * 1000,
    });
    const secret = randomBytes(32).toString("base64url");
    const onBatchCreated = (batchId: string) => {
      feed.publish({ type: "batch", batchId, status: "queued" });
      scheduler.wake(batchId);
    };
    let ownerKeyId: string | null = null;
    let localKeyId: string | null = null;
    const apiDeps: ApiDeps = {
      ...apiParts(parts, config, options.address.host),
      isLocalKey: (keyId) => keyId === localKeyId,
      isOwnerKey: (keyId) => keyId === ownerKeyId,
      facts: { dataDirectory, startedAtMs: clock.nowMs() },
      queue: () => scheduler.load,
      realtime,
      waitingOf: (batchId) => scheduler.waitingOf(batchId),
      jobsOf: (batchId) => scheduler.jobsOf(batchId),
      requestLog: options.log === "feed" ? silentLog : log,
      workersRunning: () => scheduler.isRunning || workerDeps.presence.hasWorkers,
      workersExpected: withWorkers,
      freeDiskBytes: () => freeBytesOf(dataDirectory),
      secret,
      cancel: (batchId) => scheduler.cancel(batchId),
      onBatchCreated,
    };
    const app = buildExpressApp(apiDeps);
    let graceMs = 0;
    const stopWork = () => scheduler.stop(graceMs, failing.signal.aborted);
    if (withWorkers) await startWorkers(scheduler, config, workerDeps, teardown, stopWork);
    const listening = await listen(withPathTargets(app), options.address, { log });
    teardown.add(async () => {
      const startMs = clock.monotonicMs();
      await listening.close(graceMs, () => realtime.stop());
      // Requests with an idempotency key may be at work whose callers have left.
      await realtime.stop(Math.max(0, graceMs - (clock.monotonicMs() - startMs)));
    });
    teardown.add(() => apiDeps.events.close());
    const credentials = await ensureCredentials(
      { config, dataDirectory, announceUrl: options.announceUrl, url: listening.url },
      { stores, clock, ids, log },
    );
    const localKey = await stores.read.keys.bySha256(sha256Hex(credentials.api_key));
    ownerKeyId = localKey?.id ?? null;
    const { budgetMicroUsd } = options;
    if (localKey && budgetMicroUsd === undefined) localKeyId = localKey.id;
    else if (localKey && budgetMicroUsd) {
      await stores.write((tx) => topUpReal(tx, { clock, ids }, localKey.accountId, budgetMicroUsd));
    }
    const facts = {
      url: listening.url,
      workers: withWorkers,
      providers: identitiesOf(config.providers, providers),
      secret,
    };
    await writeServerFile(dataDirectory, facts, clock);
    teardown.add(() => removeServerFile(dataDirectory, secret));
    return {
      url: listening.url,
      credentialsFile: join(dataDirectory, DATA_FILES.credentials),
      credentials,
      feed,
      failed: failing.signal,
      view: {
        ...workerDeps,
        signInLink: signInLinks(config, apiDeps.secrets, listening.url, ownerKeyId),
        freeDiskBytes: apiDeps.freeDiskBytes,
        cancel: apiDeps.cancel,
        waitingOf: apiDeps.waitingOf,
        jobsOf: apiDeps.jobsOf,
        facts: {
          ...apiDeps.facts,
          url: listening.url,
          providers: providers.map(({ name }) => name).join(", ") || null,
        },
        toPixels: (bytes, box) => toPixels(bytes, box, decoding),
        queue: () => scheduler.load,
        setPaused: (isPaused) => scheduler.setPaused(isPaused),
        retry: async (batchId) => {
          const { batch } = await retryFailed(apiDeps, batchId);
          onBatchCreated(batch.id);
          return { name: batch.taskName, itemCount: batch.itemCount };
        },
        deleteOutputs: (batchId) => dropOutputs(apiDeps, batchId, clock.nowMs()),
        deleteRecord: (batchId) => deleteRecord(apiDeps, batchId, clock.nowMs()),
      },
      close: async (grace) => {
        graceMs = grace;
        await teardown.run();
      },
    };
  } catch (error) {
    await teardown.run();
    throw withApiCode(storageFailure(dataDirectory, error));
  }
}
