import { once } from "node:events";
import { statfs } from "node:fs/promises";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, startTestService, type TestService } from "../../support/service.ts";

describe("the numbers for monitoring", () => {
  it("count requests by method, pattern of the route and status", async () => {
    const service = await startTestService({ workers: false });
    await service.ask("/imgbatch_secret/items/private-name/content");
    await service.ask("/models", { headers: { authorization: "Bearer wrong" } });
    await fetch(`${service.url}/somewhere/imgbatch_secret`, { method: "POST" });
    const requests = (labels: string) => ({ [`imgbatch_http_requests_total{${labels}}`]: 1 });
    const content = "/v1/images/batches/{id}/items/{custom_id}/content";
    const expected = {
      ...requests(`method="GET",route="${content}",status="404"`),
      ...requests('method="GET",route="/v1/images/batches/models",status="401"'),
      ...requests('method="POST",route="other",status="404"'),
      [`imgbatch_http_request_duration_seconds_count{method="GET",route="${content}"}`]: 1,
    };
    await expect.poll(() => numbersOf(service)).toMatchObject(expected);
    const text = await textOf(service);
    expect(text).not.toMatch(/imgbatch_secret|private-name/);
    expect(text).not.toContain(service.credentials.api_key.slice(0, 12));
  });

  it("count a request whose caller goes away as aborted", async () => {
    const service = await startTestService({ workers: false });
    await sendHalfOfARequest(service);
    const label = 'method="POST",route="/v1/images/batches",status="aborted"';
    await expect
      .poll(() => numbersOf(service))
      .toMatchObject({ [`imgbatch_http_requests_total{${label}}`]: 1 });
  });

  it("show batches, items, the queue and the money held as they are when asked", async () => {
    const provider = new FakeProvider({ concurrency: 1 });
    const mayEnd = gate();
    provider.answer = async ({ prompt }) => {
      if (prompt.endsWith("2")) return made();
      await mayEnd.promise;
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const { id, hold_amount } = await service.submit({ model: MODEL, items: items(3) });
    await expect.poll(() => provider.running).toBe(1);
    expect(await numbersOf(service)).toMatchObject({
      'imgbatch_batches{status="running"}': 1,
      'imgbatch_items_finished_total{outcome="success"}': 0,
      imgbatch_items_pending: 3,
      imgbatch_held_usd: hold_amount,
      imgbatch_workers_running: 1,
    });
    mayEnd.open();
    await service.until(id);
    expect(await numbersOf(service)).toMatchObject({
      'imgbatch_batches{status="running"}': 0,
      'imgbatch_batch_moves_total{status="queued"}': 1,
      'imgbatch_batch_moves_total{status="completed"}': 1,
      'imgbatch_items_finished_total{outcome="success"}': 2,
      'imgbatch_items_finished_total{outcome="failed"}': 1,
      imgbatch_items_pending: 0,
      imgbatch_held_usd: 0,
    });
  });

  it("show the process, the disk, and workers that do not run", async () => {
    const service = await startTestService({ workers: false });
    const numbers = await numbersOf(service);
    expect(numbers.imgbatch_workers_running).toBe(0);
    expect(numbers.process_resident_memory_bytes).toBeGreaterThan(1e6);
    expect(numbers.process_uptime_seconds).toBeGreaterThan(0);
    const { blocks, bsize } = await statfs(service.data);
    expect(numbers.imgbatch_disk_free_bytes).toBeGreaterThan(0);
    expect(numbers.imgbatch_disk_free_bytes).toBeLessThanOrEqual(blocks * bsize);
  });

  it("belong to one service: another in the same process has its own", async () => {
    const [one, other] = [await startTestService(), await startTestService({ workers: false })];
    const { id } = await one.submit({ model: MODEL, items: items(1) });
    await one.until(id);
    expect((await numbersOf(one))['imgbatch_items_finished_total{outcome="success"}']).toBe(1);
    expect((await numbersOf(other))['imgbatch_items_finished_total{outcome="success"}']).toBe(0);
  });
});

/** Goes away while the service waits for the body. */
async function sendHalfOfARequest({ url, credentials }: TestService): Promise<void> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  const authorization = `Authorization: Bearer ${credentials.api_key}`;
  const lines = ["Host: localhost", authorization, "Expect: 100-continue", "Content-Length: 9", "", ""];
  socket.write(["POST /v1/images/batches HTTP/1.1", ...lines].join("\r\n"));
  const [answer] = await once(socket, "data");
  expect(String(answer)).toMatch(/^HTTP\/1\.1 100 /);
  socket.destroy();
}

async function textOf(service: TestService): Promise<string> {
  const answer = await fetch(`${service.url}/metrics`);
  expect(answer.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
  return answer.text();
}

/** `name{labels}` → value, with the labels in alphabetical order as they are written. */
async function numbersOf(service: TestService): Promise<Record<string, number>> {
  const lines = (await textOf(service)).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]),
  );
}
