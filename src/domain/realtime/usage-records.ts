import type { RealtimeHoldRecord, UsageRecord } from "../ports/realtime-records.ts";
import type { CheckedContent } from "./checked-content.ts";
import type { Made } from "./make-image.ts";

/** Returns one record for each image. The first of each wanted image is paid for; further ones are free. */
export function usageOf(
  hold: RealtimeHoldRecord,
  { request, made, priceMicroUsd }: { request: CheckedContent; made: readonly Made[]; priceMicroUsd: number },
  nowMs: number,
): UsageRecord[] {
  const images = made.flatMap(({ images, executed, provider }) =>
    images.map((each, i) => ({ ...each, executed, provider, amountMicroUsd: i === 0 ? priceMicroUsd : 0 })),
  );
  return images.map(({ image, facts, executed, provider, amountMicroUsd }, imageIndex) => ({
    realtimeId: hold.id,
    imageIndex,
    apiKeyId: hold.apiKeyId,
    accountId: hold.accountId,
    model: request.model.id,
    executedModel: executed,
    provider,
    size: request.size,
    ratio: request.ratio,
    ...facts,
    sizeBytes: image.length,
    amountMicroUsd,
    createdAtMs: nowMs,
  }));
}
