import { describe, expect, it } from "vitest";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { releaseDeadHolds } from "../../../src/domain/realtime/holds.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, troubled } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { content, errorOf, generate } from "../../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };

describe("a real-time request", () => {
  it("that the next provider answers counts for both, and is paid for the one that made the image", async () => {
    const first = new FakeUpstream("first");
    const second = new FakeUpstream("second");
    first.answer = () => Promise.reject(troubled("limited"));
    const service = await startTestService({ providers: [first, second], config });
    expect((await generate(service, content("a fox"))).status).toBe(200);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.usage.list()).toMatchObject([{ provider: "second" }]);
    expect(await stores.read.providerCalls.list({})).toMatchObject([
      { provider: "first", requests: 1, images: 0, errors: 1 },
      { provider: "second", requests: 1, images: 1, errors: 0 },
    ]);
  });

  it("whose process dies while another provider makes its image counts there", async () => {
    const [first, second] = [new FakeUpstream("first"), new FakeUpstream("second")];
    const [asked, end] = [gate(), gate()];
    first.answer = () => Promise.reject(troubled("limited"));
    second.answer = async () => {
      asked.open();
      await end.promise;
      throw troubled("limited");
    };
    const service = await startTestService({ providers: [first, second], config });
    const answer = generate(service, content("a fox"));
    await asked.promise;
    const { stores } = await openBeside(service.data);
    const [hold] = await stores.read.realtimeHolds.list();
    await stores.write((tx) => tx.workers.remove(hold?.worker ?? ""));
    expect(await releaseDeadHolds(stores, Date.now())).toBe(1);
    expect(await stores.read.providerCalls.list({})).toMatchObject([
      { provider: "second", requests: 1, images: 0, errors: 1 },
    ]);
    end.open();
    await (await answer).arrayBuffer();
  });

  it("that fails within the service before it is sent goes to the next provider, and is not told as paid", async () => {
    const [first, second] = [new FakeUpstream("first"), new FakeUpstream("second")];
    first.generate = () => Promise.reject(new TypeError("a defect"));
    const service = await startTestService({ providers: [first, second], config });
    expect((await generate(service, content("a fox"))).status).toBe(200);
    second.generate = first.generate;
    for (let asked = 0; asked < 2; asked++) {
      const failed = await generate(service, content("an owl"));
      expect([failed.status, await errorOf(failed)]).toMatchObject([
        500,
        { message: "The provider failed." },
      ]);
    }
    first.generate = () => Promise.reject(new StorageUnavailable("full", "the disk is full", null));
    const unread = await generate(service, content("a hen"));
    expect([unread.status, (await errorOf(unread)).message]).toEqual([502, "the disk is full"]);
    await service.expectBooks();
  });

  it("is refused with the time to wait while every provider pauses, and nothing is held", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 40_000 }));
    const service = await startTestService({ providers: [upstream], config, clock });
    expect((await generate(service, content("a fox"))).status).toBe(429);
    clock.advance(10_000);
    const refused = await generate(service, content("a fox"));
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "30"]);
    expect(await errorOf(refused)).toMatchObject({ status: "UNAVAILABLE" });
    expect(upstream.requests).toHaveLength(1);
    const { stores } = await openBeside(service.data);
    await expect.poll(() => stores.read.realtimeHolds.list()).toEqual([]);
  });
});
