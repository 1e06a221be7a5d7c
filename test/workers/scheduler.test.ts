import { expect, it } from "vitest";
import { identityOf } from "../../src/domain/models.ts";
import { StorageUnavailable } from "../../src/domain/ports/blob-store.ts";
import type { ImageProvider } from "../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { Scheduler } from "../../src/workers/scheduler.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeJobProvider } from "../support/fake-job-provider.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { openBeside } from "../support/service.ts";
import { newItem, openBatchRecord } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";
import { workerDepsOf } from "../support/worker-deps.ts";

/** A process beside others, with a batch of one image that waits for it. */
async function schedulerBesideOthers(
  provider: ImageProvider,
  changed: (stores: Stores) => Stores = (stores) => stores,
) {
  const { stores: real, blobs } = await openBeside(await tempDir());
  const { name } = provider;
  const batch = await openBatchRecord(real, 1, { upstream: identityOf(provider), provider: name });
  await real.write((tx) => tx.items.insertMany(batch.id, [newItem(0, { customId: "i1", prompt: "a fox" })]));
  const clock = new FakeClock();
  const stores = changed(real);
  const deps = await workerDepsOf({ stores, blobs, clock, providers: [provider], isAlone: false });
  const statusOf = async () => (await real.read.batches.byId(batch.id))?.status;
  return { scheduler: new Scheduler(deps), batch, clock, statusOf };
}

it("a process beside others starts while these hold up the database, and finds its work later", async () => {
  let isBusy = true;
  const { scheduler, clock, statusOf } = await schedulerBesideOthers(new FakeProvider(), (stores) => {
    const { batches } = stores.read;
    const unmadeByOthers: typeof batches.unmadeByOthers = async (...args) => {
      if (isBusy) throw new StorageUnavailable("busy", "The database is busy.", null);
      return batches.unmadeByOthers(...args);
    };
    return { ...stores, read: { ...stores.read, batches: { ...batches, unmadeByOthers } } };
  });
  await scheduler.start();
  expect([scheduler.isRunning, await statusOf()]).toEqual([true, "queued"]);
  isBusy = false;
  clock.advance(1000);
  await expect.poll(statusOf).toBe("completed");
  await scheduler.stop(0);
});

it("a look for work that is under way when the process stops begins nothing", async () => {
  const [asked, answer] = [gate(), gate()];
  const { scheduler, statusOf } = await schedulerBesideOthers(new FakeJobProvider(), (stores) => {
    const { batches } = stores.read;
    const begun: typeof batches.begun = async (goesOn) => {
      asked.open();
      await answer.promise;
      return batches.begun(goesOn);
    };
    const unmadeByOthers = () =>
      Promise.reject(new StorageUnavailable("busy", "The database is busy.", null));
    return { ...stores, read: { ...stores.read, batches: { ...batches, begun, unmadeByOthers } } };
  });
  // The start itself finds no work.
  await scheduler.start();
  const looking = scheduler.poll();
  await asked.promise;
  await scheduler.stop(0);
  answer.open();
  await looking;
  await scheduler.stop(0);
  expect(await statusOf()).toBe("queued");
});

it("what the dead were doing is taken over while images are looked for that they have left", async () => {
  const [asked, answer] = [gate(), gate()];
  const { scheduler, statusOf } = await schedulerBesideOthers(new FakeProvider(), (stores) => {
    const { batches } = stores.read;
    const endedSince: typeof batches.endedSince = async (...args) => {
      asked.open();
      await answer.promise;
      return batches.endedSince(...args);
    };
    return { ...stores, read: { ...stores.read, batches: { ...batches, endedSince } } };
  });
  await scheduler.start();
  await scheduler.poll({ areSomeGone: true });
  await asked.promise;
  await scheduler.poll({ areSomeGone: true });
  await expect.poll(statusOf).toBe("completed");
  answer.open();
  await scheduler.stop(0);
});

it("all processes are told of a cancellation before its upstream has answered", async () => {
  const upstream = new FakeJobProvider();
  upstream.status = () => ({ state: "running" });
  const answer = gate();
  const cancel = upstream.cancel.bind(upstream);
  upstream.cancel = async (...asked) => {
    await answer.promise;
    return cancel(...asked);
  };
  const { scheduler, batch, statusOf } = await schedulerBesideOthers(upstream);
  await scheduler.start();
  await expect.poll(() => upstream.polls).toBe(1);
  const told = gate();
  const cancelling = scheduler.cancel(batch.id, async () => {
    if ((await statusOf()) === "cancelled") told.open();
  });
  await told.promise;
  expect(upstream.cancelled).toEqual([]);
  answer.open();
  await cancelling;
  expect(upstream.cancelled).toEqual(["upstream/1"]);
  await scheduler.stop(0);
});
