import type { UpstreamUsage } from "../ports/image-provider.ts";
import type { Transaction } from "../ports/stores.ts";
import type { ProviderCalls } from "../records.ts";

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

/** Adds a call to the sums of its provider and model. */
export function recordCall(tx: Transaction, call: Call, nowMs: number): Promise<void> {
  return recordCalls(tx, [call], nowMs);
}

/** Adds calls to the sums of their providers and models. */
export async function recordCalls(tx: Transaction, calls: readonly Call[], nowMs: number): Promise<void> {
  const sums = new Map<string, ProviderCalls>();
  for (const call of calls) {
    const key = JSON.stringify([call.provider, call.model]);
    const more = sumsOf(call, nowMs);
    const sum = sums.get(key);
    sums.set(key, sum === undefined ? more : added(sum, more));
  }
  // Always in the same order: two transactions that lock the rows in different orders could deadlock.
  for (const [, sum] of [...sums].sort(([a], [b]) => (a < b ? -1 : 1)))
    await tx.providerCalls.add(nowMs - (nowMs % CALLS_EVERY_MS), sum);
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
    inputTokens: usage?.inputTokens ?? 0,
    outputTokens: usage?.outputTokens ?? 0,
    lastSuccessMs: images > 0 ? nowMs : null,
  };
}

function added(a: ProviderCalls, b: ProviderCalls): ProviderCalls {
  return {
    ...a,
    requests: a.requests + b.requests,
    images: a.images + b.images,
    errors: a.errors + b.errors,
    maybePaidTwice: a.maybePaidTwice + b.maybePaidTwice,
    billedMicroUsd: a.billedMicroUsd + b.billedMicroUsd,
    costMicroUsd: a.costMicroUsd + b.costMicroUsd,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    lastSuccessMs: b.lastSuccessMs ?? a.lastSuccessMs,
  };
}
