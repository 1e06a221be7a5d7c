import { Counter, Gauge, type Registry } from "prom-client";
import { type CallSums, sumCalls } from "../../domain/health/call-sums.ts";
import type { ProviderHealth } from "../../domain/health/provider-health.ts";
import { CALLS_EVERY_MS } from "../../domain/health/record-call.ts";
import type { ModelEntry } from "../../domain/models.ts";
import { providerModel } from "../../domain/offers.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { ProviderCalls } from "../../domain/records.ts";
import type { Clock } from "../../kernel/clock.ts";
import { microsToNumber } from "../../kernel/money.ts";

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
    help: "What the upstream reported as its costs; most report none",
    of: ({ costMicroUsd }) => microsToNumber(costMicroUsd),
  },
};

export interface ProviderMetricsDeps {
  stores: Stores;
  clock: Clock;
  models: readonly ModelEntry[];
  health: ProviderHealth;
}

/**
 * The state of each configured provider for each of its models, and what it was asked since the database was made, so that
 * the counters outlive a restart. Labels are names of the configuration only. Returns the function that reads them.
 */
export function gaugeProviders(registry: Registry, deps: ProviderMetricsDeps): () => Promise<void> {
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
