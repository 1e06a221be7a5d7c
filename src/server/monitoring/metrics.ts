import type { RequestHandler } from "express";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { BATCH_STATUSES, UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { Feed } from "../../domain/feed.ts";
import { CALLS_EVERY_MS, type CallSums, sumCalls } from "../../domain/health/calls.ts";
import type { ProviderHealth } from "../../domain/health/provider-health.ts";
import { type ModelEntry, providerModel } from "../../domain/models.ts";
import type { Repositories, Stores } from "../../domain/ports/stores.ts";
import type { ProviderCalls } from "../../domain/records.ts";
import type { Clock } from "../../kernel/clock.ts";
import { microsToNumber } from "../../kernel/money.ts";

/** From a list of a few rows to a ZIP over a slow line. */
const SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120];
/** The label of requests that no operation matched. */
const OTHER_ROUTE = "other";
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/**
 * Counts responses and measures how long they took, by method, route and status; `aborted` when the caller went away.
 * The route is the path of the operation as the table has it, so that no id or name of a caller gets into a label.
 */
function observeRequests(registry: Registry): Metrics["observe"] {
  const total = new Counter({
    name: "imgbatch_http_requests_total",
    help: "Answered HTTP requests",
    labelNames: ["method", "route", "status"],
    registers: [registry],
  });
  const duration = new Histogram({
    name: "imgbatch_http_request_duration_seconds",
    help: "From the request's headers to the end of the answer",
    labelNames: ["method", "route"],
    buckets: SECONDS,
    registers: [registry],
  });
  return ({ method: sent, route = OTHER_ROUTE, status, ms }) => {
    const method = METHODS.includes(sent) ? sent : "other";
    total.inc({ method, route, status });
    duration.observe({ method, route }, ms / 1000);
  };
}

const OUTCOMES = ["success", "failed"] as const;

/** Counts the events of the feed. The feed belongs to the same service, so the subscription ends with it. */
function countEvents(registry: Registry, feed: Feed): void {
  const made = new Counter({
    name: "imgbatch_items_finished_total",
    help: "Items that got their image or failed for good, since the start",
    labelNames: ["outcome"],
    registers: [registry],
  });
  const moved = new Counter({
    name: "imgbatch_batch_moves_total",
    help: "Times that a batch reached a status, since the start",
    labelNames: ["status"],
    registers: [registry],
  });
  for (const outcome of OUTCOMES) made.inc({ outcome }, 0);
  for (const status of BATCH_STATUSES) moved.inc({ status }, 0);
  feed.subscribe((event) => {
    if (event.type === "batch") moved.inc({ status: event.status });
    else if (event.type === "item" && event.status !== "pending") made.inc({ outcome: event.status });
  });
}

/** A number without labels, and how it is read. */
interface Reading<Source> {
  help: string;
  of(source: Source): number | Promise<number>;
}

const STORES: Record<string, Reading<Repositories>> = {
  imgbatch_items_pending: {
    help: "Items of batches at work that have no outcome yet: the depth of the queue",
    of: ({ batches }) => batches.pendingItemCount(),
  },
  imgbatch_held_usd: {
    help: "Money held for batches that are not settled and real-time requests at work, all accounts together",
    of: async ({ accounts }) =>
      microsToNumber((await accounts.list()).reduce((sum, account) => sum + account.heldMicroUsd, 0)),
  },
  imgbatch_realtime_running: {
    help: "Real-time requests whose image is being made",
    of: async ({ realtimeHolds }) => (await realtimeHolds.list()).length,
  },
  imgbatch_realtime_images: {
    help: "Images that were made in real time",
    of: ({ usage }) => usage.count(),
  },
  imgbatch_retention_paused_until_timestamp_seconds: {
    help: "Nothing is deleted by time until then, because the clock jumped by more than the retention; 0: it never did",
    of: async ({ retentionTime }) => ((await retentionTime.read())?.pausedUntilMs ?? 0) / 1000,
  },
};

/** Facts of the process, under the names that dashboards for Prometheus know, and its state. */
const PROCESS: Record<string, Reading<MetricsDeps>> = {
  process_resident_memory_bytes: { help: "Memory of the process", of: () => process.memoryUsage().rss },
  nodejs_heap_size_used_bytes: {
    help: "Memory that JavaScript uses",
    of: () => process.memoryUsage().heapUsed,
  },
  process_uptime_seconds: { help: "Time since the process began", of: () => process.uptime() },
  imgbatch_workers_running: {
    help: "1 while the workers run",
    of: ({ workersRunning }) => (workersRunning() ? 1 : 0),
  },
  imgbatch_disk_free_bytes: {
    help: "Free space where the data is kept; NaN while it cannot be read",
    of: ({ freeDiskBytes }) => freeDiskBytes().catch(() => Number.NaN),
  },
};

/** Returns the function that reads these numbers again. */
function gaugeAll<Source>(registry: Registry, readings: Record<string, Reading<Source>>) {
  const gauges = Object.entries(readings).map(([name, { help, of }]) => ({
    of,
    gauge: new Gauge({ name, help, registers: [registry] }),
  }));
  return async (source: Source): Promise<void> => {
    for (const { gauge, of } of gauges) gauge.set(await of(source));
  };
}

/** Numbers of the database. Returns the function that reads them again, all in one snapshot. */
function gaugeStores(registry: Registry, stores: Stores): () => Promise<void> {
  const batches = new Gauge({
    name: "imgbatch_batches",
    help: "Unfinished batches by status",
    labelNames: ["status"],
    registers: [registry],
  });
  const readAll = gaugeAll(registry, STORES);
  return () =>
    stores.snapshot(async (now) => {
      const counts = await now.batches.unfinishedByStatus();
      for (const status of UNFINISHED_BATCH_STATUSES) batches.set({ status }, counts[status] ?? 0);
      await readAll(now);
    });
}

const STATES = ["ok", "cooling", "disabled"] as const;
const LABELS = ["provider", "model"] as const;
type Labels = Record<(typeof LABELS)[number], string>;

const COUNTERS: Record<string, { help: string; of: (sums: CallSums) => number }> = {
  requests: { help: "Requests to the provider that have ended", of: ({ requests }) => requests },
  errors: { help: "Requests to the provider that failed", of: ({ errors }) => errors },
  images: { help: "Images that the provider made", of: ({ images }) => images },
  may_be_paid_twice: {
    help: "Requests without a known outcome, after which another was sent",
    of: ({ maybePaidTwice }) => maybePaidTwice,
  },
  billed_usd: {
    help: "What callers were billed for the images of the provider",
    of: ({ billedMicroUsd }) => microsToNumber(billedMicroUsd),
  },
  upstream_cost_usd: {
    help: "The bills of the upstream, as far as they are known from the dollars or tokens that it reports",
    of: ({ costMicroUsd }) => microsToNumber(costMicroUsd),
  },
};

interface ProviderMetricsDeps {
  stores: Stores;
  clock: Clock;
  models: readonly ModelEntry[];
  health: ProviderHealth;
}

/**
 * The state of each configured provider for each of its models, and what it was asked since the database was made, so that
 * the counters outlive a restart. Labels are names of the configuration only. Returns the function that reads them.
 */
function gaugeProviders(registry: Registry, deps: ProviderMetricsDeps): () => Promise<void> {
  const { health, models } = deps;
  const registers = [registry];
  const state = new Gauge({
    name: "imgbatch_provider_state",
    help: "1 for the state of the provider for the model, 0 for the others",
    labelNames: [...LABELS, "state"],
    registers,
  });
  const counters = Object.entries(COUNTERS).map(([name, { help, of }]) => ({
    of,
    counter: new Counter({ name: `imgbatch_provider_${name}_total`, help, labelNames: LABELS, registers }),
  }));
  const served = health.providers.flatMap((provider) =>
    models.flatMap(({ id }) => {
      const upstreamModel = providerModel(provider, models, id);
      return upstreamModel === null
        ? []
        : [{ provider, upstreamModel, labels: { provider: provider.name, model: id } }];
    }),
  );
  const readSums = sumsReader(deps);
  return async () => {
    const sums = await readSums();
    for (const { counter } of counters) counter.reset();
    for (const { provider, upstreamModel, labels } of served) {
      const block = health.blockOf(provider, upstreamModel);
      const now = block ? (block.untilMs === null ? "disabled" : "cooling") : "ok";
      for (const each of STATES) state.set({ ...labels, state: each }, each === now ? 1 : 0);
      const own = sums.get(keyOf(labels)) ?? sumCalls([]);
      for (const { counter, of } of counters) counter.inc(labels, of(own));
    }
  };
}

const keyOf = ({ provider, model }: Labels) => JSON.stringify([provider, model]);

function added(sums: ReadonlyMap<string, CallSums>, calls: readonly ProviderCalls[]): Map<string, CallSums> {
  const after = new Map(sums);
  for (const call of calls) after.set(keyOf(call), sumCalls([call, after.get(keyOf(call)) ?? []].flat()));
  return after;
}

/** Stretches of time that are over do not change any more: they are read and summed up once. */
function sumsReader({ stores, clock }: ProviderMetricsDeps): () => Promise<ReadonlyMap<string, CallSums>> {
  let past: { beforeMs: number; sums: ReadonlyMap<string, CallSums> } = { beforeMs: 0, sums: new Map() };
  return () =>
    stores.snapshot(async ({ providerCalls }) => {
      const { beforeMs: fromMs, sums } = past;
      const nowMs = clock.nowMs();
      const beforeMs = Math.max(fromMs, nowMs - (nowMs % CALLS_EVERY_MS) - CALLS_EVERY_MS);
      past = { beforeMs, sums: added(sums, await providerCalls.list({ fromMs, beforeMs })) };
      return added(past.sums, await providerCalls.list({ fromMs: beforeMs }));
    });
}

interface MetricsDeps extends ProviderMetricsDeps {
  feed: Feed;
  workersRunning(): boolean;
  freeDiskBytes(): Promise<number>;
}

export interface Metrics {
  /** Counts an exchange that has ended. `route`: undefined when no operation matched. */
  observe(exchange: { method: string; route: string | undefined; status: string; ms: number }): void;
  /** `GET /metrics`: all numbers as Prometheus text. */
  answer: RequestHandler;
}

/**
 * The numbers of one service, in a registry of its own. Requests and events are counted as they happen; everything
 * else is read when `/metrics` is called, so nothing runs in between. No label holds an id, a key or a
 * name of a caller; providers and models have the names of the configuration.
 */
export function createMetrics(deps: MetricsDeps): Metrics {
  const registry = new Registry();
  const observe = observeRequests(registry);
  countEvents(registry, deps.feed);
  const readStores = gaugeStores(registry, deps.stores);
  const readProviders = gaugeProviders(registry, deps);
  const readProcess = gaugeAll(registry, PROCESS);
  return {
    observe,
    answer: async (_request, response) => {
      await readStores();
      await readProviders();
      await readProcess(deps);
      const text = await registry.metrics();
      response.setHeader("Content-Type", registry.contentType);
      response.send(Buffer.from(text));
    },
  };
}
