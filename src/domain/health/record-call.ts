import type { UpstreamUsage } from "../ports/image-provider.ts";
import type { Transaction } from "../ports/stores.ts";

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
  const { provider, model, images, isError, isMaybePaidTwice, billedMicroUsd, usage } = call;
  return tx.providerCalls.add(nowMs - (nowMs % CALLS_EVERY_MS), {
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
  });
}
