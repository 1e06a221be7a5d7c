import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import express, { type Response } from "express";
import sharp from "sharp";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { finishExchange } from "../../../src/server/http/exchange.ts";
import { listen } from "../../../src/server/listen.ts";
import { FakeProvider, made } from "../../support/fake-provider.ts";
import { requestText } from "../../support/raw-http.ts";
import { content } from "../../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const STEP_MS = 5000;

/** A connection that sends a request and reads only what it is told to. */
function reader(
  url: string,
  request: string | Buffer = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
): Socket {
  const socket = connect(Number(new URL(url).port), "127.0.0.1", () => socket.write(request));
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** Reads this many bytes, or to the end. */
async function take(socket: Socket, bytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let left = bytes;
  while (left > 0 && !socket.readableEnded && !socket.destroyed) {
    const chunk = socket.read(Math.min(left, Math.max(1, socket.readableLength)));
    if (chunk === null) await eitherOf(socket, "readable", "close");
    else {
      chunks.push(chunk);
      left -= chunk.length;
    }
  }
  return Buffer.concat(chunks);
}

async function eitherOf(socket: Socket, ...events: string[]): Promise<void> {
  const over = new AbortController();
  await Promise.race(events.map((event) => once(socket, event, { signal: over.signal })));
  over.abort();
}

describe("a slow reader", () => {
  /** A service whose image makes an answer of 20 MB, and the clock of its checks in the hands of the test. */
  async function largeAnswer() {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    onTestFinished(() => void vi.useRealTimers());
    const noise = randomBytes(2240 * 2240 * 3);
    const raw = { width: 2240, height: 2240, channels: 3 } as const;
    const provider = new FakeProvider();
    const image = await sharp(noise, { raw }).png({ compressionLevel: 0 }).toBuffer();
    provider.answer = () => made(image);
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, providers: [provider], logLines });
    const headers = [
      ["x-vendorx-api-key", service.credentials.api_key],
      ["Content-Type", "application/json"],
    ] as const;
    const body = JSON.stringify(content("x"));
    const path = `/v1beta/models/${MODEL}:generateContent`;
    const length = ["Content-Length", String(body.length)] as const;
    const socket = reader(service.url, requestText("POST", path, [...headers, length], body));
    await once(socket, "readable");
    const logged = async () => {
      await expect.poll(() => logLines.at(-1)).toContain(":generateContent");
      return JSON.parse(logLines.at(-1) ?? "");
    };
    return { service, socket, logged };
  }

  it("[LOAD-10] has its whole answer of 20 MB at 150 kB/s, and pays once", async () => {
    const { service, socket, logged } = await largeAnswer();
    const parts: Buffer[] = [];
    for (;;) {
      const part = await take(socket, (150_000 * STEP_MS) / 1000);
      if (part.length === 0) break;
      parts.push(part);
      vi.advanceTimersByTime(STEP_MS);
    }
    const answer = Buffer.concat(parts);
    const end = answer.indexOf("\r\n\r\n");
    expect(parts.length * STEP_MS).toBeGreaterThan(120_000);
    expect(answer.length).toBeGreaterThan(20e6);
    expect(JSON.parse(answer.subarray(end + 4).toString())).toMatchObject({ responseId: /./ });
    const { stores } = await openBeside(service.data);
    expect(await stores.read.usage.list({})).toHaveLength(1);
    expect(await logged()).not.toHaveProperty("aborted");
  });

  it.each([0, 1000])("[LOAD-10] that takes %i bytes a minute loses its connection", async (bytes) => {
    const { socket, logged } = await largeAnswer();
    const closed = once(socket, "close");
    for (let minute = 0; minute < 4; minute++) {
      await take(socket, bytes);
      vi.advanceTimersByTime(60_000);
    }
    socket.resume();
    await closed;
    expect(socket.bytesRead).toBeLessThan(20e6);
    expect(await logged()).toMatchObject({ aborted: true });
  });
});

describe("when there are too many connections", () => {
  /** `/work` is done with a key, and ends when it is told to. */
  async function small(maxConnections: number) {
    const working: Response[] = [];
    const app = express();
    app.use(finishExchange({ isStopping: () => false }));
    app.get("/healthz", (_request, response) => void response.json({ status: "ok" }));
    app.get("/work", (_request, response) => {
      response.locals.key = {};
      working.push(response);
      response.write("x");
    });
    app.get("/idle", (_request, response) => void response.write("x"));
    const server = await listen(app, { host: "127.0.0.1", port: 0 }, { bounds: { maxConnections } });
    onTestFinished(() => server.close(0));
    const open = async (path: string) => {
      const socket = reader(server.url, `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
      // A connection that is refused after its request came ends with an error, too.
      const closed = new Promise<string>((end) => socket.once("close", () => end("closed")));
      const answered = new Promise<string>((end) =>
        socket.once("data", (data) => end(String(data).slice(9, 12))),
      );
      return { socket, closed, answer: await Promise.race([closed, answered]) };
    };
    return { working, open, url: server.url };
  }

  it("the oldest that is idle and showed no key makes room, then one that is busy without a key", async () => {
    const { open } = await small(3);
    const keyed = await open("/work");
    const busy = await open("/idle");
    const idle = await open("/healthz");
    expect((await open("/work")).answer).toBe("200");
    expect(await idle.closed).toBe("closed");
    expect((await open("/work")).answer).toBe("200");
    expect(await busy.closed).toBe("closed");
    expect(keyed.socket.destroyed).toBe(false);
  });

  it("a request with a key is never cut for a new connection, which is refused until one is idle", async () => {
    const { open, working } = await small(2);
    const [first, second] = [await open("/work"), await open("/work")];
    expect((await open("/healthz")).answer).toBe("closed");
    working[0]?.end();
    await expect.poll(async () => (await open("/healthz")).answer).toBe("200");
    expect(await first.closed).toBe("closed");
    expect(second.socket.destroyed).toBe(false);
  });

  it("thousands of silent connections keep no other out", async () => {
    const { open, url } = await small(20);
    const silent = Array.from({ length: 100 }, () => reader(url, ""));
    await Promise.all(silent.map((socket) => once(socket, "connect")));
    expect((await open("/work")).answer).toBe("200");
    await expect.poll(() => silent.filter((socket) => !socket.closed).length).toBeLessThan(20);
  });
});
