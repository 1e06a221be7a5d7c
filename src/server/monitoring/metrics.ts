import type { RequestHandler } from "express";
import { Gauge, Registry } from "prom-client";
import type { Feed } from "../../domain/feed.ts";
import { gaugeProviders, type ProviderMetricsDeps } from "./providers.ts";
import { observeRequests } from "./requests.ts";
import { countEvents, gaugeStores } from "./work.ts";

/** Facts of the process, under the names that dashboards for Prometheus know. Returns the function that reads them. */
function gaugeProcess(registry: Registry): () => void {
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers: [registry] });
  const resident = gauge("process_resident_memory_bytes", "Memory of the process");
  const heap = gauge("nodejs_heap_size_used_bytes", "Memory that JavaScript uses");
  const uptime = gauge("process_uptime_seconds", "Time since the process began");
  return () => {
    const { rss, heapUsed } = process.memoryUsage();
    resident.set(rss);
    heap.set(heapUsed);
    uptime.set(process.uptime());
  };
}

export interface MetricsDeps extends ProviderMetricsDeps {
  feed: Feed;
  workersRunning(): boolean;
  freeDiskBytes(): Promise<number>;
}

export interface Metrics {
  /** Every request passes it before any route. */
  observe: RequestHandler;
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
  const readProcess = gaugeProcess(registry);
  const readState = gaugeState(registry, deps);
  return {
    observe,
    answer: async (_request, response) => {
      await readStores();
      await readProviders();
      readProcess();
      await readState();
      const text = await registry.metrics();
      response.setHeader("Content-Type", registry.contentType);
      response.send(Buffer.from(text));
    },
  };
}

function gaugeState(registry: Registry, deps: MetricsDeps): () => Promise<void> {
  const registers = [registry];
  const workers = new Gauge({
    name: "imgbatch_workers_running",
    help: "1 while the workers run",
    registers,
  });
  const disk = new Gauge({
    name: "imgbatch_disk_free_bytes",
    help: "Free space where the data is kept; NaN while it cannot be read",
    registers,
  });
  return async () => {
    workers.set(deps.workersRunning() ? 1 : 0);
    disk.set(await deps.freeDiskBytes().catch(() => Number.NaN));
  };
}
