import type { ProviderCalls } from "../records.ts";

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
    inputTokens: sum(({ inputTokens }) => inputTokens),
    outputTokens: sum(({ outputTokens }) => outputTokens),
    lastSuccessMs: successesMs.length === 0 ? null : successesMs.reduce((a, b) => Math.max(a, b)),
  };
}
