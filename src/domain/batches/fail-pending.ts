import type { ItemError } from "../../contract/item-errors.ts";
import type { Repositories } from "../ports/stores.ts";
import type { BatchRecord } from "../records.ts";

/** Fails every item of a batch that has no outcome, leased or not, and counts them. Answers their custom ids. */
export async function failPending(
  tx: Repositories,
  batch: BatchRecord,
  error: ItemError,
  nowMs: number,
): Promise<string[]> {
  const filter = { status: "pending", afterPosition: -1, limit: batch.itemCount } as const;
  const customIds = (await tx.items.page(batch.id, filter)).map((item) => item.customId);
  await tx.batches.addCounts(batch.id, {
    success: 0,
    fail: await tx.items.failPending(batch.id, error, nowMs),
  });
  return customIds;
}
