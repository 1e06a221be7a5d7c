import { expect, it } from "vitest";
import { TEST_STORES } from "../support/cluster/test-stores.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeUpstream, madeAfter } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";

const CONSENT = { "x-imgbatch-max-cost": "9" };
const goOn = (id: string) => [`/${id}/go-on?lease=true`, { method: "POST" }] as const;

it.runIf(TEST_STORES === "local")(
  "a batch at the service of another command goes on while its own command says so, and stops seconds after that was killed",
  async () => {
    const opened = gate();
    const provider = new FakeUpstream("shop", { concurrency: 1 });
    provider.answer = madeAfter(opened);
    const clock = new FakeClock();
    const service = await startTestService({ endsWithCommand: true, clock, providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(3) }, CONSENT);
    await expect.poll(() => provider.running).toBe(1);
    // Whoever has made the batch says so again in time.
    clock.advance(4000);
    expect((await service.ask(...goOn(id))).status).toBe(200);
    clock.advance(4000);
    expect((await service.batch(id)).waiting ?? null).toBeNull();
    clock.advance(4000);
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("STOPPED");
    opened.open();
    // What has left is kept.
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(1);
    expect(provider.requests).toHaveLength(1);
    expect((await service.ask(...goOn(id))).status).toBe(200);
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 3 });
  },
);

it("a service that stays leaves a batch stopped that a command had left so, until somebody lets it go on", async () => {
  const provider = new FakeUpstream("shop");
  const service = await startTestService({ providers: [provider] });
  await service.setPaused(true);
  const { id } = await service.submit({ model: MODEL, items: items(2) }, CONSENT);
  const { stores } = await openBeside(service.data);
  await stores.write((tx) => tx.batches.setGoesOn(id, "no"));
  await service.setPaused(false);
  expect((await service.batch(id)).waiting?.code).toBe("STOPPED");
  expect(provider.requests).toEqual([]);
  // As the console and the live view do.
  expect((await service.ask(`/${id}/go-on`, { method: "POST" })).status).toBe(200);
  expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 2 });
});
