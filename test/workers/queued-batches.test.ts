import { describe, expect, it } from "vitest";
import { BATCHES_IN_HAND } from "../../src/domain/batches/lifecycle.ts";
import { Feed } from "../../src/domain/feed.ts";
import { StorageUnavailable } from "../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import type { WorkerDeps } from "../../src/workers/deps.ts";
import { Admission } from "../../src/workers/queued-batches.ts";
import { onEachDialect } from "../support/dialects.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { openBatchRecord, openStores } from "../support/stores.ts";

/** An admission of a process of its own over the stores, and the ids of the batches that it has taken. */
function admissionOf(stores: Stores, worker: string, isAlone = false) {
  const taken: string[] = [];
  const taking = {
    onTaken: ({ id }: { id: string }) => taken.push(id),
    isActive: (id: string) => taken.includes(id),
  };
  const deps = { stores, clock: new FakeClock(), presence: { id: worker, isAlone }, feed: new Feed() };
  return { taken, admission: new Admission(deps as unknown as WorkerDeps, taking) };
}

async function queued(stores: Stores, count: number): Promise<BatchRecord[]> {
  const first = await openBatchRecord(stores, 0, { holdMicroUsd: 0 });
  const batches = [first];
  for (let i = 1; i < count; i++) {
    const batch = { ...first, id: `${first.id}${i}` };
    await stores.write((tx) => tx.batches.insert(batch));
    batches.push(batch);
  }
  return batches;
}

const join = (stores: Stores, id: string) =>
  stores.write((tx) =>
    tx.workers.insert({ id, role: "all", version: "1", providers: ["p"], isPaused: false }),
  );

onEachDialect("an admission whose answer was lost", (open) => {
  it("is found by the same process, which takes the batch once", async () => {
    const stores = await open();
    const input = { fileName: null, blobKey: "inputs/x", consentMicroUsd: null };
    const batch = await openBatchRecord(stores, 0, { holdMicroUsd: 0, input });
    await join(stores, "reader");
    let isLost = true;
    const write: Stores["write"] = async (work) => {
      const result = await stores.write(work);
      if (isLost) throw new StorageUnavailable("unknown-commit", "It may have happened.", null);
      return result;
    };
    const reader = admissionOf({ ...stores, write }, "reader");
    await expect(reader.admission.takeNext(batch)).rejects.toThrow("It may have happened.");
    isLost = false;
    const other = admissionOf(stores, "other");
    await other.admission.takeNext(batch);
    expect([reader.taken, other.taken]).toEqual([[], []]);
    await reader.admission.takeNext(batch);
    await reader.admission.takeNext(batch);
    expect(reader.taken).toEqual([batch.id]);
  });
});

describe("admission", () => {
  it("takes no more of a queue than may be in hand, in their order, however many processes look at once", async () => {
    const stores = await openStores();
    const batches = await queued(stores, BATCHES_IN_HAND + 8);
    const processes = ["a", "b", "c"].map((worker) => admissionOf(stores, worker));
    const [first] = batches as [BatchRecord];
    await Promise.all(
      processes.flatMap(({ admission }) => [admission.takeNext(first), admission.takeNext(first)]),
    );
    const taken = processes.flatMap((each) => each.taken);
    expect(taken).toEqual(batches.slice(0, BATCHES_IN_HAND).map(({ id }) => id));
  });

  it("a queue that was full counts as full until a look finds room, unless other processes may have made some", async () => {
    const stores = await openStores();
    const [first] = (await queued(stores, BATCHES_IN_HAND + 1)) as [BatchRecord];
    const alone = admissionOf(stores, "alone", true).admission;
    const beside = admissionOf(stores, "beside").admission;
    const look = async () => {
      for (const admission of [alone, beside]) await admission.takeNext(first);
      return [alone.isFull(first), beside.isFull(first)];
    };
    expect(alone.isFull(first)).toBe(false);
    await look();
    expect(await look()).toEqual([true, false]);
    await stores.write((tx) => tx.batches.changeStatus(first.id, "running", "completed"));
    expect(alone.isFull(first)).toBe(true);
    const looking = look();
    // What this look has seen is not known yet.
    expect(alone.isFull(first)).toBe(false);
    expect(await looking).toEqual([false, false]);
  });

  it("takes a batch whose reader has died again, and first", async () => {
    const stores = await openStores();
    const input = { fileName: null, blobKey: "inputs/x", consentMicroUsd: null };
    const batch = await openBatchRecord(stores, 0, { holdMicroUsd: 0, input });
    await join(stores, "reader");
    const reader = admissionOf(stores, "reader");
    await reader.admission.takeNext(batch);
    expect(reader.taken).toEqual([batch.id]);
    const other = admissionOf(stores, "other");
    await other.admission.takeNext(batch);
    expect(other.taken).toEqual([]);
    await stores.write((tx) => tx.workers.remove("reader"));
    await other.admission.takeNext(batch);
    expect(other.taken).toEqual([batch.id]);
  });
});
