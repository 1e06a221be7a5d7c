import { groupBy } from "../../kernel/json.ts";
import { paysDrawingsInPlay } from "../accounts.ts";
import type { ImageProvider, UpstreamUsage } from "../ports/image-provider.ts";
import type { Repositories, Transaction } from "../ports/stores.ts";
import type { ProviderCalls } from "../records.ts";
import { EVERY_MODEL, type ProviderTrouble } from "./provider-health.ts";

/** The time over which calls are summed up. */
export const CALLS_EVERY_MS = 5 * 60_000;

/** A request to a provider that has ended. */
export interface Call {
  provider: string;
  /** The requested model. */
  model: string;
  images: number;
  isError: boolean;
  /** A request without a known outcome came before it. */
  isMaybePaidTwice: boolean;
  billedMicroUsd: number;
  usage: UpstreamUsage | null;
}

/** Adds calls to the sums of their providers and models. */
export async function recordCalls(tx: Transaction, calls: readonly Call[], nowMs: number): Promise<void> {
  const each = calls.map((call) => sumsOf(call, nowMs));
  const groups = groupBy(each, ({ provider, model }) => JSON.stringify([provider, model]));
  // Always in the same order: two transactions that lock the rows in different orders could deadlock.
  for (const [key, group] of [...groups].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const [provider, model] = JSON.parse(key) as [string, string];
    await tx.providerCalls.add(nowMs - (nowMs % CALLS_EVERY_MS), { provider, model, ...sumCalls(group) });
  }
}

function sumsOf(
  { provider, model, images, isError, isMaybePaidTwice, billedMicroUsd, usage }: Call,
  nowMs: number,
): ProviderCalls {
  return {
    provider,
    model,
    requests: 1,
    images,
    errors: isError ? 1 : 0,
    maybePaidTwice: isMaybePaidTwice ? 1 : 0,
    billedMicroUsd,
    costMicroUsd: usage?.costMicroUsd ?? 0,
    unreportedMicroUsd: usage?.costMicroUsd == null ? billedMicroUsd : 0,
    inputTokens: usage?.inputTokens ?? 0,
    outputTokens: usage?.outputTokens ?? 0,
    lastSuccessMs: images > 0 ? nowMs : null,
  };
}

/** The sums of calls of providers. */
export type CallSums = Omit<ProviderCalls, "provider" | "model">;

/** Returns the sums of calls; zeros and null for none. */
export function sumCalls(calls: readonly CallSums[]): CallSums {
  const sum = (count: (each: CallSums) => number) => calls.reduce((total, each) => total + count(each), 0);
  const successesMs = calls.flatMap(({ lastSuccessMs }) => lastSuccessMs ?? []);
  return {
    requests: sum(({ requests }) => requests),
    images: sum(({ images }) => images),
    errors: sum(({ errors }) => errors),
    maybePaidTwice: sum(({ maybePaidTwice }) => maybePaidTwice),
    billedMicroUsd: sum(({ billedMicroUsd }) => billedMicroUsd),
    costMicroUsd: sum(({ costMicroUsd }) => costMicroUsd),
    unreportedMicroUsd: sum(({ unreportedMicroUsd }) => unreportedMicroUsd),
    inputTokens: sum(({ inputTokens }) => inputTokens),
    outputTokens: sum(({ outputTokens }) => outputTokens),
    lastSuccessMs: successesMs.length === 0 ? null : successesMs.reduce((a, b) => Math.max(a, b)),
  };
}

const HOUR_MS = 3_600_000;

/** The state of a configured provider, for people. */
export interface ProviderReport {
  name: string;
  /** The type of the configuration. */
  type: string;
  /** Why the configuration or the environment disables it, such as a missing key; null when they do not. Those of the running service count. */
  disabled: string | null;
  troubles: readonly ProviderTrouble[];
  /** The sums of the 5-minute stretches that overlap the last hour. */
  lastHour: CallSums;
  total: CallSums;
  /** Whether callers were billed play money only, because it draws. */
  isPlay: boolean;
  /** The jobs that are at work at the upstream. Null for a provider without jobs. */
  jobs: { atWork: number } | null;
}

/** Returns what is known of providers, in their order. `read`: null without a database. */
export async function reportProviders(
  providers: readonly ImageProvider[],
  {
    read,
    nowMs,
    troublesOf,
  }: {
    read: Pick<Repositories, "providerCalls" | "upstreamJobs" | "accounts"> | null;
    nowMs: number;
    troublesOf(provider: ImageProvider): ProviderTrouble[];
  },
): Promise<ProviderReport[]> {
  const fromMs = nowMs - HOUR_MS;
  const hour = (await read?.providerCalls.list({ fromMs: fromMs - (fromMs % CALLS_EVERY_MS) })) ?? [];
  const all = (await read?.providerCalls.list({})) ?? [];
  const isPlay = paysDrawingsInPlay((await read?.accounts.list()) ?? []);
  const atWork = (await read?.upstreamJobs.atWork()) ?? [];
  return providers.map((provider) => {
    const { name, upstream } = provider;
    const isOwn = (each: { provider: string }) => each.provider === name;
    return {
      name,
      type: upstream?.type ?? "procedural",
      disabled: upstream?.disabled ?? null,
      troubles: troublesOf(provider),
      lastHour: sumCalls(hour.filter(isOwn)),
      total: sumCalls(all.filter(isOwn)),
      isPlay: isPlay && upstream === undefined,
      jobs: provider.kind === "job" ? { atWork: atWork.find(isOwn)?.count ?? 0 } : null,
    };
  });
}

/** Separates a trouble that concerns all models of a provider from troubles of single models. */
export function splitTroubles({ troubles }: Pick<ProviderReport, "troubles">): {
  ofAll: ProviderTrouble | undefined;
  ofModels: ProviderTrouble[];
} {
  return {
    ofAll: troubles.find(({ model }) => model === EVERY_MODEL),
    ofModels: troubles.filter(({ model }) => model !== EVERY_MODEL),
  };
}
