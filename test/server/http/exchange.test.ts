import { connect, type Socket } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { FakeProvider } from "../../support/fake-provider.ts";
import { content, generate } from "../../support/realtime.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";

const START_MICRO_USD = 1_000_000_000;

/** A provider that makes nothing until the caller has gone. */
function waiting(concurrency: number): FakeProvider {
  const provider = new FakeProvider({ concurrency });
  provider.answer = (_, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  return provider;
}

/** Sends requests on one connection, without waiting for answers. */
function pipeline(service: TestService, requests: readonly string[]): Socket {
  const socket = connect(Number(new URL(service.url).port), "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.write(requests.join(""));
  return socket;
}

function requestOf(service: TestService, line: string, body = ""): string {
  const head = [
    `${line} HTTP/1.1`,
    "Host: localhost",
    `Authorization: Bearer ${service.credentials.api_key}`,
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

const image = (service: TestService) =>
  requestOf(service, `POST /v1beta/models/${MODEL}:generateContent`, JSON.stringify(content("x")));

function requestLines(lines: readonly string[], path: string): object[] {
  const parsed = lines.map((line) => JSON.parse(line));
  return parsed.filter((line) => line.msg === "request" && line.path.includes(path));
}

it("requests that wait on a connection end with it: money, slots and log lines come back", async () => {
  const provider = waiting(8);
  const logLines: string[] = [];
  const service = await startTestService({ workers: false, providers: [provider], logLines });
  const { stores } = await openBeside(service.data);
  const account = () => stores.read.accounts.byName("default");
  const socket = pipeline(service, Array(16).fill(image(service)));
  const state = async () => [provider.running, (await account())?.heldMicroUsd];
  await expect.poll(state).toEqual([8, 16 * 67_000]);
  expect((await generate(service, content("x"))).status).toBe(429);
  socket.destroy();
  await expect.poll(() => requestLines(logLines, "generateContent")).toHaveLength(17);
  await expect.poll(state).toEqual([0, 0]);
  expect((await account())?.balanceMicroUsd).toBe(START_MICRO_USD);
  expect(await stores.read.usage.list({})).toEqual([]);
  expect(provider.requests).toHaveLength(8);
  const aborted = requestLines(logLines, "generateContent").filter((line) => "aborted" in line);
  expect(aborted).toHaveLength(16);
  const metrics = await (await fetch(`${service.url}/metrics`)).text();
  expect(metrics).toContain('route="/v1beta/models/{model}:generateContent",status="aborted"} 16');

  provider.answer = new FakeProvider().answer;
  const again = await Promise.all(Array.from({ length: 16 }, () => generate(service, content("x"))));
  expect(again.map(({ status }) => status)).toEqual(Array(16).fill(200));
});

it("downloads that wait behind another answer give their places back with the connection", async () => {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await service.until(id);
  const path = `/${id}/items/i1/content`;
  const status = async () => {
    const answer = await service.ask(path);
    await answer.arrayBuffer();
    return answer.status;
  };
  provider.answer = waiting(1).answer;
  const download = requestOf(service, `GET /v1/images/batches${path}`);
  const socket = pipeline(service, [image(service), download, download]);
  // All three came in one piece.
  await expect.poll(() => provider.running).toBe(1);
  expect(await status()).toBe(429);
  socket.destroy();
  await expect.poll(async () => [await status(), await status()]).toEqual([200, 200]);
});
