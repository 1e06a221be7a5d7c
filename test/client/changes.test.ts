import { describe, expect, it, onTestFinished } from "vitest";
import { followChanges } from "../../src/client/poll.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

const HOUR_MS = 3_600_000;
const httpTo = (baseUrl: string, apiKey: string) =>
  createServiceHttp({ baseUrl, apiKey, clock: systemClock, random: Math.random });

function follow(http: ReturnType<typeof httpTo>, clock: FakeClock) {
  const changes = followChanges({ http, isLocal: false }, clock, undefined);
  if (changes === null) throw new Error("A service elsewhere is followed.");
  onTestFinished(() => changes.stop());
  return changes;
}

describe("the changes of a service elsewhere", () => {
  it("end a sleep when the batch changes, also one that had changed before it, but not within a second", async () => {
    const service = await startTestService();
    await service.setPaused(true);
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const clock = new FakeClock();
    const changes = follow(httpTo(service.url, service.credentials.api_key), clock);
    const other = changes.sleep("imgbatch_other", HOUR_MS).then(() => "woken");
    const slept = changes.sleep(id, HOUR_MS);
    const nudge = setInterval(
      () => service.feed.publish({ type: "batch", batchId: id, status: "queued" }),
      200,
    );
    onTestFinished(() => clearInterval(nudge));
    const pause = () => new Promise((resolve) => setTimeout(resolve, 600)).then(() => "asleep");
    expect(await Promise.race([slept, pause()])).toBe("asleep");
    clock.advance(1000);
    await slept;
    await pause();
    const again = changes.sleep(id, HOUR_MS);
    clock.advance(1000);
    await again;
    expect(await Promise.race([other, "asleep"])).toBe("asleep");
    clock.advance(HOUR_MS);
    expect(await other).toBe("woken");
  });

  it("are no help where the service has none: a sleep takes its time, and ends with its signal", async () => {
    const fake = await startFakeService();
    onTestFinished(() => fake.close());
    const clock = new FakeClock();
    const changes = follow(httpTo(fake.url, FAKE_KEY), clock);
    await expect.poll(() => fake.count(/^GET \/v1\/events/)).toBe(1);
    const slept = changes.sleep("imgbatch_1", 10_000);
    clock.advance(1000);
    await new Promise(setImmediate);
    clock.advance(9000);
    await slept;
    const stop = new AbortController();
    const stopped = changes.sleep("imgbatch_1", 10_000, stop.signal);
    stop.abort(new Error("stopped"));
    await expect(stopped).rejects.toThrow("stopped");
    clock.advance(HOUR_MS);
    expect(fake.count(/^GET \/v1\/events/)).toBe(1);
  });

  it("are not followed on this machine, nor with a fixed interval", async () => {
    const http = httpTo("http://127.0.0.1:1", FAKE_KEY);
    expect(followChanges({ http, isLocal: true }, systemClock, undefined)).toBeNull();
    expect(followChanges({ http, isLocal: false }, systemClock, 10_000)).toBeNull();
  });
});
