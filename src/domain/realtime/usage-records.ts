import type { MadeImage } from "../images/output-images.ts";
import type { RealtimeHoldRecord, UsageRecord } from "../ports/realtime-records.ts";
import type { CheckedContent } from "./checked-content.ts";

/** Returns one record for each image. The first is paid for; further images are free. */
export function usageOf(
  hold: RealtimeHoldRecord,
  facts: { images: readonly MadeImage[]; request: CheckedContent; executed: string; provider: string },
  nowMs: number,
): UsageRecord[] {
  const { request, executed, provider } = facts;
  return facts.images.map((image, imageIndex) => ({
    realtimeId: hold.id,
    imageIndex,
    apiKeyId: hold.apiKeyId,
    accountId: hold.accountId,
    model: request.model.id,
    executedModel: executed,
    provider,
    size: request.size,
    ratio: request.ratio,
    ...image.facts,
    sizeBytes: image.bytes.length,
    amountMicroUsd: imageIndex === 0 ? hold.amountMicroUsd : 0,
    createdAtMs: nowMs,
  }));
}
