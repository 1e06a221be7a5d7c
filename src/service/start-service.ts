import { setMaxListeners } from "node:events";
import type { Role } from "../config/roles.ts";
import { type Config, undercharging } from "../config/schema.ts";
import { LOCAL_STORAGE, type StoragePlaces } from "../config/storage-places.ts";
import type { Credentials } from "../contract/data-directory.ts";
import { Feed } from "../domain/feed.ts";
import type { ProviderHealth } from "../domain/health/provider-health.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import { beginTraces } from "../environment.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { type Ids, randomIds } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import { readVersion } from "../kernel/package-file.ts";
import { setTracer, type Tracer } from "../kernel/tracing.ts";
import { withApiCode } from "../server/http/errors.ts";
import { storageFailure } from "../storage/disk-trouble.ts";
import { type LiveView, openApi } from "./api-part.ts";
import { feedLog } from "./pino-log.ts";
import { openOwnStorage } from "./storage/open-storage.ts";
import { openWorkers, runAll } from "./workers-part.ts";

/** An optional package: only those install it who have a collector. Its later versions need Node 22. */
const PACKAGE = "@opentelemetry/sdk-node@0.223";
/** How long an export may take, and how long a stop waits for the last one. */
const FLUSH_MS = 2000;
/** A collector that is away is reported this often at most. */
const REPORT_EVERY_MS = 10 * 60_000;

type Sdk = typeof import("@opentelemetry/sdk-node");

/**
 * Sends spans to the collector that the standard variables (`OTEL_…`) name, until it is closed. Returns null where they name
 * none. Without the package it warns once, and there are no spans. Nothing waits for a collector, except `close` for 2 s.
 */
async function openTracing(log: Log): Promise<{ close(graceMs: number): Promise<void> } | null> {
  if (!beginTraces(FLUSH_MS)) return null;
  let sdk: Sdk;
  try {
    sdk = await import("@opentelemetry/sdk-node");
  } catch {
    const message =
      "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, but a package is missing; starting without them";
    log.warn(message, { package: PACKAGE, advice: `npm install --global ${PACKAGE}` });
    return null;
  }
  const { api, core, resources } = sdk;
  const node = new sdk.NodeSDK({
    // What the environment says comes first.
    resource: resources.resourceFromAttributes({
      "service.name": "imgbatch",
      "service.version": readVersion(),
    }),
    // The others tell command lines and users.
    resourceDetectors: [resources.envDetector],
    // Baggage of callers is not for upstreams.
    textMapPropagator: new core.W3CTraceContextPropagator(),
    metricReaders: [],
    logRecordProcessors: [],
  });
  api.diag.setLogger(reportTo(log), { logLevel: api.DiagLogLevel.ERROR, suppressOverrideMessage: true });
  node.start();
  setTracer(tracerOf(sdk));
  return {
    close: async (graceMs) => {
      setTracer(null);
      const waited = new AbortController();
      const flushed = node.shutdown().catch(() => {});
      await Promise.race([flushed, systemClock.sleep(Math.min(graceMs, FLUSH_MS), waited.signal)]).finally(
        () => waited.abort(),
      );
      for (const part of [api.trace, api.context, api.propagation, api.diag]) part.disable();
    },
  };
}

/** The SDK's own log. Its messages may quote what a collector has answered, so only their code is told. */
function reportTo(log: Log) {
  let reportedAt = Number.NEGATIVE_INFINITY;
  const error = (...said: unknown[]) => {
    if (performance.now() - reportedAt < REPORT_EVERY_MS) return;
    reportedAt = performance.now();
    const [, code = "unknown"] = /"code":"?(\w+)/.exec(said.map(String).join(" ")) ?? [];
    log.warn("traces do not reach their collector; some are lost", { code });
  };
  const ignore = () => {};
  return { error, warn: ignore, info: ignore, debug: ignore, verbose: ignore };
}

function tracerOf({ api }: Sdk): Tracer {
  const { context, propagation, trace, ROOT_CONTEXT, SpanKind, SpanStatusCode } = api;
  const source = trace.getTracer("imgbatch", readVersion());
  const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT };
  /** Work that a request has begun may outlive it. Its span is then no parent any more. */
  const stateKey = api.createContextKey("imgbatch span");
  const running = () => {
    const active = context.active();
    const state = active.getValue(stateKey) as { isOver: boolean } | undefined;
    return state?.isOver === false ? active : ROOT_CONTEXT;
  };
  return {
    span: async (name, facts, work, { parent, startedAt, kind } = {}) => {
      const around = parent === undefined ? running() : propagation.extract(ROOT_CONTEXT, parent ?? {});
      const options = {
        attributes: facts,
        ...(kind && { kind: kinds[kind] }),
        ...(startedAt !== undefined && { startTime: startedAt }),
      };
      const span = source.startSpan(name, options, around);
      const state = { isOver: false };
      try {
        return await context.with(trace.setSpan(around, span).setValue(stateKey, state), work);
      } catch (error) {
        const { code, name: type } = error as { code?: string; name?: string };
        span.setAttribute("error.type", String(code ?? type ?? "unknown"));
        span.setStatus({ code: SpanStatusCode.ERROR });
        throw error;
      } finally {
        state.isOver = true;
        span.end();
      }
    },
    note: (facts) => void trace.getSpan(running())?.setAttributes(facts),
    headers: () => {
      const headers: Record<string, string> = {};
      propagation.inject(running(), headers);
      return headers;
    },
  };
}

/** How long a process that stops still takes requests beside others: by then their proxy has seen that it is not ready. */
const DRAIN_MS = 5000;

/** A service that keeps everything in its data directory. */
export interface LocalServiceOptions {
  config: Config;
  dataDirectory: string;
  /** Port 0 takes a free one. */
  address: { host: string; port: number };
  /**
   * Whether the service is that of a command, and works only on the batches that a command names. Then `credentials.json`
   * does not name its address. Default: it stays, and works on all that is sent to it.
   */
  endsWithCommand?: boolean;
  /** Without workers the service shows and serves existing batches, and takes none. */
  workers: boolean;
  /**
   * Real money that the local account gets for this start, in micro-dollars. Consent in requests does not count then. Default:
   * none, and consent counts.
   */
  budgetMicroUsd?: number;
  /** What recording may pay to upstreams, in micro-dollars: see `replay` of the configuration. Default: nothing. */
  recordingMicroUsd?: number;
  /** Whether the data directory is removed at the end: then nothing waits for its disk. Default: no. */
  isThrowaway?: boolean;
  /** Whether tests may order faults and read the requests, at `/imgbatch/test`. Default: no. */
  isForTests?: boolean;
  /** `feed`: log lines go to the feed alone, for a live view. Warnings and errors go to the feed in any case. */
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
  /** Lets a batch go on for as long as the service runs, because the person here names it. */
  goOn(batchId: string): Promise<void>;
  /** Begins no more work for batches from now on. Requests are still answered. */
  pause(): void;
  /** The state of its providers. */
  health: ProviderHealth;
  /** Makes a link that signs the owner of this machine in to the web console, once; null where there is no console. */
  signInLink: (() => Promise<string>) | null;
  /** Opens the API on a private address of this machine for the live view of this process. Call it once. */
  openLiveView(): Promise<LiveView>;
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
  const { config, dataDirectory, storage = LOCAL_STORAGE, role = "all", usesNotices = true } = options;
  const isShared = storage.database.kind === "postgres";
  const feed = options.feed ?? new Feed();
  const inFeed = feedLog(feed, options.clock ?? systemClock);
  const log = options.log === "feed" ? inFeed : withProblemsIn(options.log, inFeed);
  const [failing, ending, stopping] = [new AbortController(), new AbortController(), new AbortController()];
  // Everything that waits for the database listens to it, and Node would warn of the eleventh listener.
  setMaxListeners(0, stopping.signal);
  const onBroken = (cause: Error) => {
    const error = storageFailure(dataDirectory, cause);
    log.error("the database cannot be used any more; stopping", { error: error.message });
    failing.abort(error);
  };
  /** In the order of their start. */
  const parts: { close(graceMs: number): Promise<void> }[] = [];
  const closeAll = (graceMs: number) =>
    runAll(
      ...parts
        .splice(0)
        .reverse()
        .map((part) => () => part.close(graceMs)),
    );
  try {
    // A command with a service of its own is not traced.
    const tracing = !options.endsWithCommand ? await openTracing(log) : null;
    if (tracing !== null) parts.push(tracing);
    const stored = await openOwnStorage(storage, {
      directory: dataDirectory,
      ...(options.clock ? { clock: options.clock } : {}),
      onBroken,
      isThrowaway: options.isThrowaway,
      stopping: stopping.signal,
    });
    parts.push(stored);
    for (const { message, advice } of stored.warnings) log.warn(message, { advice });
    const withWorkers = role !== "api" && options.workers && config.features.workers;
    const workers = await openWorkers({
      config,
      storage: usesNotices ? stored : { ...stored, listen: null },
      clock: options.clock ?? stored.clock,
      ids: options.ids ?? randomIds,
      random: options.random ?? Math.random,
      feed,
      log,
      ending: ending.signal,
      failed: failing.signal,
      providers: options.providers,
      recordingMicroUsd: options.recordingMicroUsd,
      presence: { role: withWorkers ? role : "api", isAlone: !isShared },
      goesOn: options.endsWithCommand ? "while-named" : "always",
    });
    parts.push(workers);
    const { providers, scheduler } = workers;
    // A command with a service of its own gives the reason itself.
    for (const { name, upstream } of !options.endsWithCommand ? providers : [])
      if (upstream?.disabled)
        log.warn("a provider is disabled", { provider: name, reason: upstream.disabled });
    for (const { message, advice } of !options.endsWithCommand && role !== "worker"
      ? undercharging(config)
      : [])
      log.info(message, { advice });
    const api = await openApi({
      ...options,
      storage,
      role,
      workers,
      withWorkers,
      isShared,
      isFeedOnly: options.log === "feed",
    });
    parts.push(api);
    const { access } = api;
    return {
      url: api.url,
      credentialsFile: access?.credentialsFile ?? null,
      credentials: access?.credentials ?? null,
      feed,
      failed: failing.signal,
      queue: () => scheduler.load,
      goOn: (batchId) => scheduler.goOn(batchId, false),
      pause: () => scheduler.setPaused(true),
      health: workers.deps.health,
      signInLink: api.signInLink,
      openLiveView: api.openLiveView,
      close: async (grace, drains = true) => {
        ending.abort();
        // Otherwise each step below would wait for a database that is away, one after the other.
        const stopped = new AbortController();
        systemClock.sleep(grace, stopped.signal).then(
          () => stopping.abort(),
          () => {},
        );
        const drainMs = drains && isShared && role !== "worker" ? Math.min(DRAIN_MS, grace / 2) : 0;
        try {
          await systemClock.sleep(drainMs);
          await closeAll(grace - drainMs);
        } catch (error) {
          throw withApiCode(storageFailure(dataDirectory, error));
        } finally {
          stopped.abort();
        }
      },
    };
  } catch (error) {
    await closeAll(0).catch(() => {});
    throw withApiCode(storageFailure(dataDirectory, error));
  }
}

/** A log whose warnings and errors go to another one, too: the web console shows them. */
function withProblemsIn(log: Log, other: Log): Log {
  const both =
    (level: "warn" | "error"): Log["warn"] =>
    (message, facts) => {
      log[level](message, facts);
      other[level](message, facts);
    };
  return { ...log, warn: both("warn"), error: both("error") };
}
