import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { claimDirectory, removeLeftovers } from "./claim.ts";
import { adoptedBatch, newRunState, readRunState, writeRunState } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";
import { makerAt, type RunService } from "./service-identity.ts";

/**
 * Prepares a directory for the images of batches that were submitted elsewhere. A directory that
 * already belongs to these batches stays as it is. `from` is the run whose batches they are, if it is known. Throws `DIRECTORY_CONFLICT` when it belongs to others.
 */
export async function adoptDirectory(
  dir: string,
  batches: readonly Batch[],
  service: RunService,
  clock: Clock,
  from: RunState | null,
): Promise<RunState> {
  const { identity, keyFingerprint } = service;
  const existing = await readRunState(dir);
  if (existing !== null) {
    const ids = existing.batches.map((entry) => entry.id);
    if (ids.length === batches.length && batches.every((batch) => ids.includes(batch.id))) return existing;
    throw new ImgbatchError(
      "DIRECTORY_CONFLICT",
      `${dir} belongs to other batches. Choose another directory with --output.`,
    );
  }
  await claimDirectory(dir, null);
  await removeLeftovers(dir);
  const entries = batches.map((batch, index) => {
    const { round = 0, retried } = from?.batches.find(({ id }) => id === batch.id) ?? {};
    return {
      ...adoptedBatch(index, makerAt(service), batch),
      round,
      ...(retried === undefined ? {} : { retried }),
    };
  });
  const fresh = newRunState({
    baseUrl: identity,
    keyFingerprint,
    upstream: service.upstream,
    inputSha256: null,
    isFresh: false,
    request: null,
    nowMs: clock.nowMs(),
    batches: entries,
  });
  const runState = from?.updates === undefined ? fresh : { ...fresh, updates: from.updates };
  await writeRunState(dir, runState);
  return runState;
}
