import type { BatchStatus } from "../contract/statuses.ts";
import type { Feed } from "../domain/feed.ts";

/** Publishes on the feed that a batch has ended early, and which items have failed with it. */
export function reportEnded(
  feed: Feed,
  batchId: string,
  status: BatchStatus,
  failedCustomIds: readonly string[],
): void {
  for (const customId of failedCustomIds) feed.publish({ type: "item", batchId, customId, status: "failed" });
  feed.publish({ type: "batch", batchId, status });
}
