import { connect } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeProvider, madeAfter } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { requestText } from "../../support/raw-http.ts";
import { items, MODEL, otherKey, startTestService, type TestService } from "../../support/service.ts";

/** An open stream of events, whose text grows. */
async function follow(service: TestService, headers: Record<string, string> = {}) {
  const reading = new AbortController();
  onTestFinished(() => reading.abort());
  const authorization = `Bearer ${service.credentials.api_key}`;
  const answer = await fetch(`${service.url}/v1/events`, {
    headers: { authorization, ...headers },
    signal: reading.signal,
  });
  const stream = { answer, text: "", isEnded: false };
  const read = async () => {
    for await (const chunk of answer.body ?? []) stream.text += Buffer.from(chunk).toString();
    stream.isEnded = true;
  };
  read().catch(() => {});
  return stream;
}

describe("the stream of events", () => {
  it("[EVENTS-1] tells a key about its batch and its money, and another key nothing", async () => {
    const open = gate();
    const provider = new FakeProvider();
    provider.answer = madeAfter(open);
    const service = await startTestService({ providers: [provider] });
    const own = await follow(service, { "last-event-id": "imgbatch_0\u00ff; 9999999999999999999999" });
    const stranger = await follow(service, (await otherKey(service, { account: "second" })).headers);
    expect(Object.fromEntries(own.answer.headers)).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
    });
    await expect.poll(() => own.text).toContain("event: ready");
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => own.text).toContain(`{"id":"${id}","items":[]}`);
    open.open();
    await expect.poll(() => own.text).toContain(`{"id":"${id}","items":["i1"]}`);
    await expect.poll(() => own.text).toContain("event: account");
    expect(stranger.text).toBe("event: ready\ndata: {}\n\n");
  });

  it("ends at once when the service stops, and HEAD opens none", async () => {
    const service = await startTestService({ workers: false });
    const authorization = `Bearer ${service.credentials.api_key}`;
    const head = await fetch(`${service.url}/v1/events`, { method: "HEAD", headers: { authorization } });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    const stream = await follow(service);
    await expect.poll(() => stream.text).toContain("ready");
    const startedAt = performance.now();
    await service.close(60_000);
    expect(performance.now() - startedAt).toBeLessThan(30_000);
    await expect.poll(() => stream.isEnded).toBe(true);
  });

  it("goes on for a reader to whom much happens in a second", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const other = await service.submit({ model: MODEL, items: items(1) });
    for (const batch of [id, other.id]) await service.until(batch);
    const stream = await follow(service);
    await expect.poll(() => stream.text).toContain("ready");
    for (const long of ["x", "y"]) {
      for (const batchId of [id, other.id]) {
        const customId = long.repeat(100_000);
        service.feed.publish({ type: "item", batchId, customId, status: "success" });
      }
      await expect.poll(() => stream.text.split(`${long}"]`).length).toBe(3);
    }
    expect(stream.isEnded).toBe(false);
  });

  it("cuts a reader who does not take what it is sent", { timeout: 50_000 }, async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(id);
    const key = ["Authorization", `Bearer ${service.credentials.api_key}`] as const;
    const socket = connect(Number(new URL(service.url).port), "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {});
    socket.write(requestText("GET", "/v1/events", [key]));
    await new Promise((resolve) => socket.once("data", resolve));
    socket.pause();
    const ended = gate();
    service.feed.subscribe((event) => {
      if (event.type === "request" && event.line.path === "/v1/events") ended.open();
    });
    const tell = setInterval(() => {
      const customId = "x".repeat(8_000_000);
      service.feed.publish({ type: "item", batchId: id, customId, status: "success" });
    }, 500);
    onTestFinished(() => clearInterval(tell));
    await ended.promise;
  });
});
