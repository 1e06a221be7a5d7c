import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { claimDirectory, removeLeftovers, requireSameService } from "./claim.ts";
import { adoptedBatch, newRunState, readRunState, writeRunState } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";
import type { RunService } from "./service-identity.ts";

/**
 * Prepares a directory for the images of batches that were submitted elsewhere. A directory that
 * already belongs to these batches stays as it is. Throws `DIRECTORY_CONFLICT` when it belongs to others.
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
  const entries = batches.map((batch, index) => adoptedBatch(index, batch));
  const runState = newRunState({
    baseUrl: identity,
    keyFingerprint,
    upstream: service.upstream,
    inputSha256: null,
    isFresh: false,
    request: null,
    nowMs: clock.nowMs(),
    batches: entries,
  });
  await writeRunState(dir, runState);
  return runState;
}
