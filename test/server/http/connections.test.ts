import { once } from "node:events";
import { connect, type Socket } from "node:net";
import express, { type Response } from "express";
import { describe, expect, it, onTestFinished } from "vitest";
import { beginExchange } from "../../../src/server/http/exchange.ts";
import { listen } from "../../../src/server/listen.ts";
import { fakeExchangeDeps } from "../../support/exchange-deps.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { content, generate } from "../../support/realtime.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";

const MIB = 1024 * 1024;

/** A connection that sends a request and reads nothing before it is told to. */
function reader(url: string, path: string): Socket {
  const socket = connect(Number(new URL(url).port), "127.0.0.1", () => {
    if (path !== "") socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  });
  socket.pause();
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** A server: `/work` ends when it is told to, `/large` has 32 MB. `ended` gets each exchange that was logged. */
async function serve(bounds: { maxConnections?: number; stallMs?: number }) {
  const working: Response[] = [];
  const ended: { path: string; aborted?: boolean }[] = [];
  const app = express();
  app.use(
    beginExchange(
      fakeExchangeDeps((line) => ended.push(line)),
      { observe: () => {} },
    ),
  );
  app.get("/done", (_request, response) => void response.json({ status: "ok" }));
  app.get("/large", (_request, response) => void response.send(Buffer.alloc(32 * MIB)));
  app.get("/work", (_request, response) => {
    working.push(response);
    response.write("x");
  });
  const server = await listen(app, { host: "127.0.0.1", port: 0 }, { bounds });
  onTestFinished(() => server.close(0));
  const open = async (path: string) => {
    const socket = reader(server.url, path);
    socket.resume();
    // A connection that is refused after its request came ends with an error, too.
    const closed = new Promise<string>((end) => socket.once("close", () => end("closed")));
    const answered = new Promise<string>((end) =>
      socket.once("data", (data) => end(String(data).slice(9, 12))),
    );
    return { socket, closed, answer: await Promise.race([closed, answered]) };
  };
  return { url: server.url, working, ended, open };
}

describe("a connection", () => {
  it.each([0, 1000])("[LOAD-10] whose reader takes %i bytes now and then is closed", async (bytes) => {
    const { url, ended } = await serve({ stallMs: 300 });
    const socket = reader(url, "/large");
    const timer = setInterval(() => socket.read(bytes), 50);
    await expect.poll(() => ended, { timeout: 10_000 }).toMatchObject([{ path: "/large", aborted: true }]);
    clearInterval(timer);
    socket.resume();
    if (!socket.closed) await once(socket, "close");
    expect(socket.bytesRead).toBeLessThan(32 * MIB);
  });

  it("[LOAD-10] whose reader is slow but takes something all the time has its whole response", async () => {
    const { url, ended } = await serve({ stallMs: 800 });
    const socket = reader(url, "/large");
    const startedAt = performance.now();
    let left = MIB;
    const timer = setInterval(() => {
      left = MIB;
      socket.resume();
    }, 50);
    socket.on("data", ({ length }) => {
      left -= length;
      if (left <= 0) socket.pause();
    });
    await expect.poll(() => ended, { timeout: 20_000 }).toHaveLength(1);
    clearInterval(timer);
    expect(performance.now() - startedAt).toBeGreaterThan(1000);
    expect(ended[0]).not.toHaveProperty("aborted");
  });

  it("[LOAD-10] is not closed because the service takes its time", async () => {
    const { open, working, ended } = await serve({ stallMs: 100 });
    const { socket } = await open("/work");
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(socket.destroyed).toBe(false);
    working[0]?.end("y");
    await expect.poll(() => ended).toHaveLength(1);
    expect(ended[0]).not.toHaveProperty("aborted");
  });
});

describe("when there are too many connections", () => {
  it("the oldest without a request makes room; one with a request is never cut", async () => {
    const { open, working } = await serve({ maxConnections: 3 });
    const idle = await open("/done");
    const first = await open("/work");
    expect((await open("/work")).answer).toBe("200");
    expect(await idle.closed).toBe("closed");
    const third = await open("/work");
    expect(third.answer).toBe("200");
    expect((await open("/done")).answer).toBe("closed");
    expect(first.socket.destroyed || third.socket.destroyed).toBe(false);
    working[0]?.end();
    await expect.poll(async () => (await open("/done")).answer).toBe("200");
    expect(await first.closed).toBe("closed");
  });

  it("thousands of silent connections keep no other out", async () => {
    const { open, url } = await serve({ maxConnections: 20 });
    const silent = Array.from({ length: 100 }, () => reader(url, "").resume());
    await Promise.all(silent.map((socket) => once(socket, "connect")));
    await expect.poll(async () => (await open("/work")).answer).toBe("200");
    await expect.poll(() => silent.filter((socket) => !socket.closed).length).toBeLessThan(20);
  });
});

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
  expect(await stores.read.usage.list()).toEqual([]);
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
