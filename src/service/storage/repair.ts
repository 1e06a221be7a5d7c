import { isTerminal } from "../../contract/statuses.ts";
import { doubtfulBatches } from "../../domain/check-invariants.ts";
import { groupBy } from "../../kernel/json.ts";
import { removeUnknown, removeUnnamed } from "../../workers/recovery.ts";
import type { OpenStorage } from "./open-storage.ts";

interface RepairReport {
  /** How many files were removed that no row names. */
  files: number;
  /** The batches whose counts of successes and failures were corrected. */
  batchIds: string[];
}

/** Younger files may be those of a request or an image that a running service is about to record. */
const ABANDONED_MS = 3_600_000;

/**
 * Repairs what can be repaired for certain, also while services run: counts of batches that differ from their items, and files
 * that no row names. Money, histories, and images that are lost or damaged stay as they are. A second call finds nothing.
 */
export async function repairStorage(deps: Pick<OpenStorage, "stores" | "blobs">): Promise<RepairReport> {
  const batchIds = await repairCounts(deps);
  return { batchIds, files: (await removeOutputs(deps)) + (await removeUnknown(deps, ABANDONED_MS)) };
}

async function repairCounts({ stores }: Pick<OpenStorage, "stores">): Promise<string[]> {
  const repaired: string[] = [];
  const doubtful: string[] = [];
  for await (const { batches } of doubtfulBatches(stores.read)) doubtful.push(...batches.map(({ id }) => id));
  for (const id of doubtful) {
    const isRepaired = await stores.write(async (tx) => {
      const batch = await tx.batches.locked(id);
      if (batch === null) return false;
      const { pending, success, failed } = await tx.items.countByStatus(id);
      // Else the items are wrong, and the counts may be right.
      const isWhole = pending + success + failed === batch.itemCount;
      if (!isWhole || (pending > 0 && isTerminal(batch.status))) return false;
      const change = { id, success: success - batch.successCount, fail: failed - batch.failCount };
      if (change.success === 0 && change.fail === 0) return false;
      await tx.batches.addCounts(change);
      return true;
    });
    if (isRepaired) repaired.push(id);
  }
  return repaired;
}

/** Removes images that no row names, unless a worker may be about to record them. */
async function removeOutputs({ stores, blobs }: Pick<OpenStorage, "stores" | "blobs">): Promise<number> {
  let removed = 0;
  const listed = (await blobs.list("outputs/")).filter(({ ageMs }) => ageMs >= ABANDONED_MS);
  for (const [id, some] of groupBy(listed, ({ key }) => key.split("/")[1] ?? "")) {
    const batch = await stores.read.batches.byId(id);
    if (batch !== null && !isTerminal(batch.status)) continue;
    removed += await removeUnnamed({ stores, blobs }, id, some);
  }
  return removed;
}
