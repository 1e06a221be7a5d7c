import { ImgbatchError } from "../../contract/errors.ts";
import type { ItemError } from "../../contract/statuses.ts";
import type { Ids } from "../../kernel/ids.ts";
import { startIn } from "../batches/lifecycle.ts";
import type { Stores } from "../ports/stores.ts";
import { endJob, isAtWork, newJob } from "./job-rules.ts";

/** Why images fail of which no request has left. */
const UNSENT: ItemError = {
  code: "CANCELLED",
  message: "The batch was ended before the upstream was asked for this image.",
  source: "service",
};

/**
 * Decides that no more images of a batch come from jobs of its upstream. Images that no request has asked for fail at once.
 * Jobs that may exist are marked: whoever works on them asks the upstream to stop them, waits until it has ended them, and
 * fetches what they have made. The batch ends after the last of them. Returns the custom ids of the images that have failed. Can
 * be repeated; changes nothing about a batch that has ended. Throws `BATCH_IMAGE_NOT_IN_JOBS` for one that was made with
 * another API.
 */
export async function endJobs(
  { stores, ids }: { stores: Stores; ids: Pick<Ids, "leaseToken" | "recordId"> },
  batchId: string,
  nowMs: number,
): Promise<string[]> {
  return stores.write(async (tx) => {
    await startIn(tx, batchId, nowMs);
    const batch = await tx.batches.locked(batchId);
    if (batch !== null && batch.source !== "batch") throw new ImgbatchError("BATCH_IMAGE_NOT_IN_JOBS");
    if (batch?.status !== "running") return [];
    const end = { error: UNSENT, isOfJob: false, nowMs, leaseToken: ids.leaseToken() };
    const failed: string[] = [];
    for (const job of await tx.upstreamJobs.ofBatch(batchId)) {
      if (!isAtWork(job)) continue;
      if (job.creates === 0) failed.push(...(await endJob(tx, batch, job, end)));
      else {
        const isUnsent = job.step === "new" || job.step === "uploaded";
        // An earlier request may have created it, although the upstream said that it took none.
        const lookFor = isUnsent ? ({ step: "sent", sentAtMs: job.sentAtMs ?? nowMs } as const) : {};
        const stopAskedAtMs = job.stopAskedAtMs ?? nowMs;
        await tx.upstreamJobs.update(job.id, { stopAskedAtMs, ...lookFor });
      }
    }
    const rest = newJob(
      `imgbatch-${await tx.upstreamJobs.databaseId()}-${ids.recordId("job")}`,
      batch,
      nowMs,
    );
    const items = { jobId: rest.id, provider: batch.provider, limit: batch.itemCount };
    if ((await tx.items.assignToJob(batchId, items)) === 0) return failed;
    await tx.upstreamJobs.insert(rest);
    return [...failed, ...(await endJob(tx, batch, rest, end))];
  });
}
