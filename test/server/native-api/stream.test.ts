import { describe, expect, it } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { content, errorOf, generate } from "../../support/realtime.ts";
import { startTestService } from "../../support/service.ts";

const SSE = { verb: "streamGenerateContent?alt=sse" };
const PLAIN = { verb: "streamGenerateContent" };
const EMPTY = { candidates: [{ content: { role: "model", parts: [] }, index: 0 }] };

/** A service whose provider waits for the gate, and whose time is ours. */
async function slowService() {
  const clock = new FakeClock();
  const [asked, end] = [gate(), gate()];
  const provider = new FakeProvider();
  provider.answer = async () => {
    asked.open();
    await end.promise;
    return made(await tinyPng());
  };
  const service = await startTestService({ workers: false, providers: [provider], clock });
  return { service, clock, asked, end };
}

/** The values of the events; every event must be one `data:` line and a blank one. */
function eventsOf(text: string): unknown[] {
  expect(text).toMatch(/^(data: .+\n\n)+$/);
  return text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => JSON.parse(event.slice("data: ".length)));
}

describe("a stream", () => {
  it("is one event with the whole answer, and nothing but data lines", async () => {
    const service = await startTestService({ workers: false });
    for (const prefix of ["/v1beta", "/v1"]) {
      const answer = await generate(service, content("fox"), { ...SSE, prefix });
      expect(answer.headers.get("content-type")).toBe("text/event-stream");
      const events = eventsOf(await answer.text());
      expect(events).toHaveLength(1);
      expect(events[0]).toMatchObject({ candidates: [{ finishReason: "STOP" }], usageMetadata: {} });
    }
  });

  it("without alt=sse is a JSON array", async () => {
    const service = await startTestService({ workers: false });
    const answer = await generate(service, content("fox"), PLAIN);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(await answer.json()).toMatchObject([{ candidates: [{ finishReason: "STOP" }] }]);
  });

  it("fails as an ordinary answer while nothing was sent", async () => {
    const service = await startTestService({ workers: false, providers: [] });
    const events = await generate(service, content("fox"), SSE);
    expect([events.status, (await errorOf(events)).status]).toEqual([503, "UNAVAILABLE"]);
    const array = await generate(service, content("fox"), PLAIN);
    expect([array.status, await array.json()]).toMatchObject([503, [{ error: { code: 503 } }]]);
    const other = await generate(service, content("fox"), { verb: "streamGenerateContent?alt=proto" });
    expect(other.status).toBe(400);
    await other.arrayBuffer();
  });

  it("that takes long begins with an empty event", async () => {
    const { service, clock, asked, end } = await slowService();
    const pending = generate(service, content("fox"), SSE);
    await asked.promise;
    clock.advance(10_000);
    const answer = await pending;
    end.open();
    const events = eventsOf(await answer.text());
    expect(events).toEqual([EMPTY, expect.objectContaining({ responseId: expect.any(String) })]);
  });

  it.each([
    [SSE, eventsOf],
    [PLAIN, (text: string) => JSON.parse(text)],
  ])("that fails on its way ends with the error (%#)", async (target, parse) => {
    const { service, clock, asked, end } = await slowService();
    const pending = generate(service, content("fox"), target);
    await asked.promise;
    clock.advance(10_000);
    const answer = await pending;
    end.fail(new ProviderError("PROVIDER_RATE_LIMITED", "slow down", { retryAfterMs: 2000 }));
    expect(answer.status).toBe(200);
    const error = expect.objectContaining({ code: 429, message: "slow down", status: "RESOURCE_EXHAUSTED" });
    expect(parse(await answer.text())).toEqual([EMPTY, { error }]);
  });
});
