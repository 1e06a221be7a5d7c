import { describe, expect, it } from "vitest";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { answerOf, content, errorOf, generate, imagesOf } from "../../support/realtime.ts";
import { startTestService, type TestService } from "../../support/service.ts";

async function statusOf(service: TestService, verb = "generateContent"): Promise<[number, string | null]> {
  const answer = await generate(service, content("x"), { verb });
  await answer.arrayBuffer();
  return [answer.status, answer.headers.get("retry-after")];
}

describe("the limits of a key", () => {
  it("[RT-14] bound how many requests begin in any minute", async () => {
    const clock = new FakeClock();
    const config = { limits: { requestsPerMinute: 3 } };
    const service = await startTestService({ workers: false, config, clock });
    expect(await statusOf(service)).toEqual([200, null]);
    clock.advance(50_000);
    expect(await statusOf(service, "streamGenerateContent?alt=sse")).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([429, "10"]);
    const error = await errorOf(await generate(service, content("x")));
    expect(error).toMatchObject({
      status: "RESOURCE_EXHAUSTED",
      message: expect.stringContaining("3 requests"),
    });
    const headers = { "x-api-key": service.credentials.api_key };
    expect((await fetch(`${service.url}/v1beta/models`, { headers, method: "HEAD" })).status).toBe(200);
    clock.advance(10_000);
    expect(await statusOf(service)).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([429, "50"]);
  });

  it("[RT-14] bound how many requests run at once", async () => {
    const end = gate();
    const provider = new FakeProvider();
    provider.answer = () => end.promise.then(() => tinyPng()).then((png) => made(png));
    const config = { limits: { concurrentRequests: 2 } };
    const service = await startTestService({ workers: false, providers: [provider], config });
    const running = [generate(service, content("1")), generate(service, content("2"))];
    await expect.poll(() => provider.running).toBe(2);
    expect(await statusOf(service)).toEqual([429, "1"]);
    end.open();
    for (const answer of running) expect(imagesOf(await answerOf(await answer))).toHaveLength(1);
    await expect.poll(() => statusOf(service)).toEqual([200, null]);
  });

  it("[RT-14] can be switched off", async () => {
    const config = { limits: { concurrentRequests: 0, requestsPerMinute: 0 } };
    const service = await startTestService({ workers: false, config });
    const answers = await Promise.all(Array.from({ length: 20 }, () => statusOf(service)));
    expect(new Set(answers.map(([status]) => status))).toEqual(new Set([200]));
  });
});
