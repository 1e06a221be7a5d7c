import { expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { Feed } from "../../src/domain/feed.ts";
import { invalidLine, type Line } from "../../src/domain/jobs/take-in.ts";
import { Offers } from "../../src/domain/models.ts";
import { StorageUnavailable } from "../../src/domain/ports/blob-store.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import type { WorkerDeps } from "../../src/workers/deps.ts";
import { Intake } from "../../src/workers/scheduler.ts";
import { modelEntry } from "../support/entries.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { type Gate, gate } from "../support/gate.ts";
import { openBeside } from "../support/service.ts";
import { openBatchRecord } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Jobs whose inputs are read until the gate of their API key opens. */
async function jobsOfKeys() {
  const { stores, blobs } = await openBeside(await tempDir());
  const begun: string[] = [];
  const gates = new Map<string, Gate<void>>();
  const clock = new FakeClock();
  let fail: () => Promise<void> = async () => {};
  async function* read(
    _model: unknown,
    _bytes: unknown,
    { apiKeyId }: { apiKeyId: string },
  ): AsyncGenerator<Line> {
    begun.push(apiKeyId);
    await fail();
    await gates.get(apiKeyId)?.promise;
    yield { key: null, error: invalidLine("not this") };
  }
  const deps = {
    stores,
    blobs,
    clock,
    random: () => 1,
    feed: new Feed(),
    models: [modelEntry],
    offers: new Offers([], [modelEntry]),
    limits: DEFAULT_LIMITS,
    lineReaders: { native: read },
    presence: { isAlone: true, id: "worker" },
    goingOn: { kind: "always" },
  } as unknown as WorkerDeps;
  const intake = new Intake(deps);
  const job = async (apiKeyId?: string): Promise<BatchRecord> => {
    const id = randomIds.batchId();
    const input = { fileName: "files/a", blobKey: `inputs/${id}/lines`, consentMicroUsd: null };
    await blobs.put(input.blobKey, Buffer.from("x"));
    const facts = { id, estimatedMicroUsd: 0, holdMicroUsd: 0, source: "native", model: "m", input } as const;
    const batch = await openBatchRecord(stores, 0, {
      ...facts,
      ...(apiKeyId === undefined ? {} : { apiKeyId }),
    });
    if (apiKeyId === undefined) gates.set(batch.apiKeyId, gate());
    return batch;
  };
  const take = (batch: BatchRecord) => intake.take(batch, () => false);
  const failWith = (work: () => Promise<void>) => {
    fail = work;
  };
  return {
    job,
    take,
    begun,
    stores,
    blobs,
    clock,
    failWith,
    end: (apiKeyId: string) => gates.get(apiKeyId)?.open(),
  };
}

it("a full disk keeps the input of a job and nothing that its reading stored, and is asked again more and more seldom", async () => {
  const { job, take, stores, blobs, clock, failWith } = await jobsOfKeys();
  const batch = await job();
  const full = new StorageUnavailable("full", "The service's disk is full.", null);
  for (const pauseMs of [5000, 10_000, 20_000]) {
    failWith(async () => {
      await blobs.put(`inputs/${batch.id}/picture`, Buffer.from("x"));
      throw full;
    });
    const taken = expect(take(batch)).rejects.toBe(full);
    await expect.poll(() => clock.nextWakeInMs).toBe(pauseMs);
    expect(await blobs.list("inputs/")).toMatchObject([{ key: batch.input?.blobKey }]);
    clock.advance(pauseMs);
    await taken;
  }
  const unknown = new StorageUnavailable("unknown-commit", "The service's disk has failed.", null);
  failWith(async () => {
    await blobs.put(`inputs/${batch.id}/picture`, Buffer.from("x"));
    throw unknown;
  });
  const taken = expect(take(batch)).rejects.toBe(unknown);
  await expect.poll(() => clock.nextWakeInMs).toBe(40_000);
  expect(await blobs.list("inputs/")).toHaveLength(2);
  // The failures of a batch that has ended are not counted on.
  await stores.write((tx) => tx.batches.changeStatus(batch.id, "queued", "cancelled"));
  clock.advance(40_000);
  await taken;
  await stores.write((tx) => tx.batches.changeStatus(batch.id, "cancelled", "queued"));
  const again = expect(take(batch)).rejects.toBe(unknown);
  await expect.poll(() => clock.nextWakeInMs).toBe(5000);
  clock.advance(5000);
  await again;
});

it("inputs of one key are read one at a time, in their order, and do not hold up those of another", async () => {
  const { job, take, begun, end } = await jobsOfKeys();
  const large = await job();
  const first = large.apiKeyId;
  const second = await job(first);
  const ofFirst = take(large);
  await expect.poll(() => begun).toEqual([first]);
  expect(await take(second)).toBeNull();
  const [other, third] = [await job(), await job()];
  const [ofOther, ofThird] = [take(other), take(third)];
  await expect.poll(() => begun).toEqual([first, other.apiKeyId]);
  end(other.apiKeyId);
  expect(await ofOther).toBe("queued");
  await expect.poll(() => begun).toEqual([first, other.apiKeyId, third.apiKeyId]);
  end(third.apiKeyId);
  expect(await ofThird).toBe("queued");
  end(first);
  expect(await ofFirst).toBe("queued");
  expect(await take(second)).toBe("queued");
});
