import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { claimDirectory, removeLeftovers, requireSameService } from "./claim.ts";
import {
  newRunState,
  type RunBatch,
  type RunState,
  readRunState,
  recordBatch,
  writeRunState,
} from "./run-state.ts";
import type { RunService } from "./service-identity.ts";

/**
 * Prepares a directory for the images of batches that were submitted elsewhere. One that already belongs to these
 * batches is taken as it is. Throws `DIRECTORY_CONFLICT` when it belongs to others.
 */
export async function adoptDirectory(
  dir: string,
  batches: readonly Batch[],
  service: RunService,
  clock: Clock,
): Promise<RunState> {
  const { identity, keyFingerprint } = service;
  const existing = await readRunState(dir);
  if (existing !== null) {
    requireSameService(dir, existing, service);
    const ids = existing.batches.map((entry) => entry.id);
    if (ids.length === batches.length && batches.every((batch) => ids.includes(batch.id))) return existing;
    throw new ImgbatchError(
      "DIRECTORY_CONFLICT",
      `${dir} belongs to other batches. Choose another directory with --output.`,
    );
  }
  await claimDirectory(dir, { identity, keyFingerprint, inputSha256: null });
  await removeLeftovers(dir);
  const entries = batches.map((batch, index) => adopted(batch, index));
  const runState = newRunState({
    baseUrl: identity,
    keyFingerprint,
    inputSha256: null,
    isFresh: false,
    request: null,
    nowMs: clock.nowMs(),
    batches: entries,
  });
  await writeRunState(dir, runState);
  return runState;
}

function adopted(batch: Batch, index: number): RunBatch {
  const entry: RunBatch = {
    index,
    id: batch.id,
    idempotency_key: null,
    state: "created",
    status: null,
    item_count: null,
    success_count: null,
    fail_count: null,
    estimated_cost: null,
    actual_cost: null,
    parent_batch_id: null,
    round: 0,
  };
  recordBatch(entry, batch);
  return entry;
}
