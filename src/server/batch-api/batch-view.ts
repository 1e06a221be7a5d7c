import type { BatchObject } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { ShownJob, Waiting } from "../../contract/waiting.ts";
import { costOf } from "../../domain/batches/create-batch.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import type { ScopedCaller } from "../http/authenticate.ts";

/** The caller's batch. Throws the same `BATCH_IMAGE_NOT_FOUND` for another key's batch, a deleted record and an unknown id. */
export async function findBatch(stores: Stores, caller: ScopedCaller, id: unknown): Promise<BatchRecord> {
  const batch = await stores.read.batches.byId(String(id));
  const isTheirs = batch?.apiKeyId === caller.key.id || caller.scope.keys === "all";
  if (batch && isTheirs && batch.recordDeletedAtMs === null) return batch;
  throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND");
}

/**
 * A batch as the API shows it. `waiting`: why its items cannot be made now. `jobs`: those at work upstream. `queuedBehind`:
 * how many batches come first, where that was counted. `isOwner`: the upstream's own words are shown, too.
 */
function batchView(
  batch: BatchRecord,
  waiting: Waiting | null,
  jobs: readonly ShownJob[],
  queuedBehind: number | null,
  isOwner: boolean,
  isInJobs: boolean,
): BatchObject {
  return {
    id: batch.id,
    object: "image.batch",
    task_name: batch.taskName,
    status: batch.status,
    model: batch.model,
    parent_batch_id: batch.parentBatchId,
    metadata: batch.metadata,
    provider: batch.provider,
    item_count: batch.itemCount,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    pending_count: batch.itemCount - batch.successCount - batch.failCount,
    estimated_cost: microsToNumber(batch.estimatedMicroUsd),
    hold_amount: microsToNumber(batch.holdMicroUsd),
    actual_cost: batch.actualMicroUsd === null ? null : microsToNumber(batch.actualMicroUsd),
    play_money: batch.price.isPlay === true,
    created_at: toSeconds(batch.createdAtMs),
    submitted_at: toSeconds(batch.submittedAtMs),
    settled_at: toSeconds(batch.settledAtMs),
    downloaded_at: toSeconds(batch.downloadedAtMs),
    output_deleted_at: toSeconds(batch.outputDeletedAtMs),
    expires_at: toSeconds(batch.outputsExpireAtMs),
    error: batch.error,
    source: batch.source,
    waiting: waiting && {
      code: waiting.code,
      message: waiting.message,
      until: waiting.untilMs === null ? null : Math.ceil(waiting.untilMs / 1000),
      ...(waiting.said && isOwner ? { said: waiting.said } : {}),
    },
    queued_behind: queuedBehind,
    ...(isInJobs ? { in_jobs: true } : {}),
    upstream_jobs: jobs.map(({ createdAtMs, ...job }) => ({ ...job, created_at: toSeconds(createdAtMs) })),
  };
}

/** Returns a batch as the API shows it to a caller, with why it waits and its jobs as they are now. */
export async function showBatch(
  deps: Pick<ApiDeps, "stores" | "waitingOf" | "jobsOf" | "isInJobs">,
  { scope }: ScopedCaller,
  batch: BatchRecord,
  queuedBehind: number | null = null,
): Promise<BatchObject> {
  const view = batchView(
    batch,
    deps.waitingOf(batch),
    await deps.jobsOf(batch),
    queuedBehind,
    scope.isOwner,
    deps.isInJobs(batch),
  );
  if (scope.keys === "own") return view;
  // The live view shows the cost before the settlement, and times to the millisecond.
  return {
    ...view,
    actual_cost: microsToNumber(await costOf(deps.stores.read, batch)),
    created_at: batch.createdAtMs / 1000,
    settled_at: batch.endedAtMs === null ? null : batch.endedAtMs / 1000,
  };
}
