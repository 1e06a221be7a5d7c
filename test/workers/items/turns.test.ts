import { expect, it } from "vitest";
import { identityOf } from "../../../src/domain/models.ts";
import { Turns } from "../../../src/workers/items/item-pool.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, troubled } from "../../support/fake-provider.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { workerDepsOf } from "../../support/worker-deps.ts";

const FREE = { holdMicroUsd: 0, estimatedMicroUsd: 0 };

it("why a batch waits is written once, however many others wait beside it", async () => {
  const { stores: real, blobs } = await openBeside(await tempDir());
  const provider = new FakeUpstream("vendor");
  const clock = new FakeClock();
  const count = 510;
  for (let i = 0; i < count; i++) {
    const batch = await openBatchRecord(real, 1, {
      upstream: identityOf(provider),
      provider: "vendor",
      ...FREE,
    });
    await real.write((tx) => tx.items.insertMany(batch.id, [newItem(0)]));
  }
  let writes = 0;
  const write: typeof real.write = (work) => {
    writes++;
    return real.write(work);
  };
  const deps = await workerDepsOf({
    ...{ stores: { ...real, write }, blobs, clock, providers: [provider], isAlone: true },
  });
  await deps.health.begin(provider, "m")?.failed(troubled("forbidden"), "1");
  const turns = new Turns(
    { ...deps, outageMs: 3_600_000 },
    { onBatchIdle: () => {}, mayBegin: () => true, isIdle: () => true },
  );
  const plan = () => turns.plan(new Map([[provider, 1]]), new Set(), clock.nowMs());
  writes = 0;
  await plan();
  expect(writes).toBe(count);
  turns.forgetSome(clock.nowMs());
  await plan();
  expect(writes).toBe(count);
});
