import { Counter, Gauge, type Registry } from "prom-client";
import { BATCH_STATUSES } from "../../contract/statuses.ts";
import type { Feed } from "../../domain/feed.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { microsToNumber } from "../../kernel/money.ts";

const OUTCOMES = ["success", "failed"] as const;

/** Counts the events of the feed. The feed belongs to the same service, so the subscription ends with it. */
export function countEvents(registry: Registry, feed: Feed): void {
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

/** Numbers of the database. Returns the function that reads them again, all in one snapshot. */
export function gaugeStores(registry: Registry, stores: Stores): () => Promise<void> {
  const registers = [registry];
  const batches = new Gauge({
    name: "imgbatch_batches",
    help: "Batches by status, deleted records among them",
    labelNames: ["status"],
    registers,
  });
  const pending = new Gauge({
    name: "imgbatch_items_pending",
    help: "Items of batches at work that have no outcome yet: the depth of the queue",
    registers,
  });
  const held = new Gauge({
    name: "imgbatch_held_usd",
    help: "Money held for batches that are not settled and real-time requests at work, all accounts together",
    registers,
  });
  const running = new Gauge({
    name: "imgbatch_realtime_running",
    help: "Real-time requests whose image is being made",
    registers,
  });
  const images = new Gauge({
    name: "imgbatch_realtime_images",
    help: "Images that were made in real time",
    registers,
  });
  const clock = new Gauge({
    name: "imgbatch_retention_clock_ahead_seconds",
    help: "Seconds that the clock jumped ahead and that retention does not count yet: nothing is deleted because of this jump",
    registers,
  });
  const countBatches = seldom(() => stores.read.batches.countByStatus());
  return async () => {
    const counts = await countBatches();
    await stores.snapshot(async (now) => {
      for (const status of BATCH_STATUSES) batches.set({ status }, counts[status] ?? 0);
      pending.set(await now.batches.pendingItemCount());
      const heldMicroUsd = (await now.accounts.list()).reduce(
        (sum, account) => sum + account.heldMicroUsd,
        0,
      );
      held.set(microsToNumber(heldMicroUsd));
      running.set((await now.realtimeHolds.list()).length);
      images.set(await now.usage.count());
      clock.set(((await now.retentionTime.read())?.aheadMs ?? 0) / 1000);
    });
  };
}

/** A query that takes longer keeps other requests waiting. */
const LONG_MS = 10;

/**
 * Runs a query. After one that took long, returns its result again until a hundred times as long has passed: to count a
 * million batches takes a tenth of a second.
 */
export function seldom<T>(query: () => Promise<T>): () => Promise<T> {
  let last: Promise<T> | null = null;
  let untilMs = 0;
  return async () => {
    const startMs = performance.now();
    if (last !== null && startMs < untilMs) return last;
    last = query();
    await last;
    const tookMs = performance.now() - startMs;
    if (tookMs > LONG_MS) untilMs = performance.now() + 100 * tookMs;
    return last;
  };
}
