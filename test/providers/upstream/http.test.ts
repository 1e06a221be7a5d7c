import { describe, expect, it, onTestFinished } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import type { ImagesJson } from "../../../src/providers/upstream/answer-images.ts";
import { UpstreamHttp } from "../../../src/providers/upstream/http.ts";
import { dataUrlOf, jsonBody } from "../../../src/providers/upstream/request-body.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import {
  bytes,
  closedPort,
  depsWith,
  json,
  never,
  providerError,
  type Reply,
  reference,
  scriptedServer,
} from "./scripted-server.ts";

function connect(baseUrl: string, deps = depsWith()): UpstreamHttp {
  const http = new UpstreamHttp({ name: "painter", baseUrl, concurrency: 2 }, deps);
  onTestFinished(() => http.close());
  return http;
}

const POST = { method: "POST", path: "/make", headers: {}, body: jsonBody({ a: 1 }) } as const;

/** Sends one request. Returns its error, and how often it was told to leave. */
async function failure(http: UpstreamHttp): Promise<{ error: ProviderError; sent: number }> {
  let sent = 0;
  const error = await providerError(http.json(POST, never, () => sent++));
  return { error, sent };
}

describe("a request to an upstream", () => {
  it("[UPSTREAM-4] is told to leave when there is a connection and nothing has arrived yet", async () => {
    const server = await scriptedServer(json({}));
    let arrivedBefore = -1;
    await connect(server.url).json(POST, never, () => {
      arrivedBefore = server.seen.length;
    });
    expect(arrivedBefore).toBe(0);
  });

  it("[UPSTREAM-4] does not leave when its caller refuses that", async () => {
    const server = await scriptedServer(json({}));
    const refused = connect(server.url).json(POST, never, () => {
      throw new Error("not now");
    });
    await expect(refused).rejects.toThrow("not now");
    expect(server.seen).toHaveLength(0);
  });

  it("has the query of the base URL behind its path", async () => {
    const server = await scriptedServer(json({}));
    const http = connect(`${server.url}/v1/?api-version=2`);
    expect(http.baseUrl).toBe(`${server.url}/v1`);
    await http.json(POST, never);
    await http.json({ ...POST, path: "/make?alt=json" }, never);
    expect(server.seen.map(({ url }) => url)).toEqual([
      "/v1/make?api-version=2",
      "/v1/make?alt=json&api-version=2",
    ]);
  });

  it("to a server that speaks no TLS says so", async () => {
    const server = await scriptedServer(json({}));
    const { error, sent } = await failure(connect(server.url.replace("http:", "https:")));
    expect([error.trouble, sent]).toEqual(["unreachable", 0]);
    expect(error.message).toContain("its address may begin with http://");
  });

  it("[UPSTREAM-4] that finds no connection was not sent", async () => {
    const refused = await failure(connect(`http://127.0.0.1:${await closedPort()}`));
    expect(refused.error).toMatchObject({
      trouble: "unreachable",
      code: "PROVIDER_ITEM_FAILED",
      retryable: true,
    });
    expect(refused.error.message).toContain("ECONNREFUSED");
    expect(refused.sent).toBe(0);
    const unknown = await failure(connect("http://no-such-host.invalid"));
    expect(unknown.error.trouble).toBe("unreachable");
    expect(unknown.sent).toBe(0);
  });

  it("[UPSTREAM-4] whose TLS fails was not sent", async () => {
    const server = await scriptedServer();
    const { error, sent } = await failure(connect(server.url.replace("http:", "https:")));
    expect(error.trouble).toBe("unreachable");
    expect(sent).toBe(0);
    expect(server.seen).toHaveLength(0);
  });

  const BROKEN: [string, Reply][] = [
    ["no HTTP", (_seen, _answer, socket) => socket.end("SSH-2.0-OpenSSH_9.6\r\n")],
    [
      "endless headers",
      (_seen, _answer, socket) => socket.end(`HTTP/1.1 200 OK\r\nx: ${"x".repeat(200_000)}\r\n\r\n`),
    ],
    ["nothing", bytes("")],
    ["no content", bytes("", 204)],
    ["deep JSON", bytes("[".repeat(100_000) + "]".repeat(100_000))],
    ["wide JSON", bytes(`[${"0,".repeat(300_000)}0]`)],
  ];
  it.each(BROKEN)("[UPSTREAM-5] that was sent and brought back %s is ambiguous", async (_name, reply) => {
    const server = await scriptedServer(reply);
    const { error, sent } = await failure(connect(server.url));
    expect(error).toMatchObject({ trouble: "ambiguous", code: "PROVIDER_ITEM_FAILED", retryable: true });
    expect(sent).toBe(1);
    expect(server.seen).toHaveLength(1);
  });

  it("[UPSTREAM-5] ends when more comes than an answer may have", async () => {
    const server = await scriptedServer((_seen, answer) => {
      const chunk = Buffer.alloc(64 * 1024, 0x20);
      const more = () => {
        while (!answer.destroyed && answer.write(chunk));
        answer.once("drain", more);
      };
      answer.writeHead(200);
      more();
    });
    const http = connect(server.url);
    const read = () => ({ images: [], modelVersion: null });
    for (const endless of [http.json(POST, never), http.images(POST, never, {}, read)]) {
      const error = await providerError(endless);
      expect(error).toMatchObject({ trouble: "ambiguous", upstreamStatus: 200 });
      expect(error.message).toContain("an answer of more than 16777216 bytes");
    }
  });

  it("[UPSTREAM-5] keeps the status of an error whose body breaks off, has no end, or comes too slowly", async () => {
    const clock = new FakeClock();
    const server = await scriptedServer((_seen, answer, socket) => {
      answer.writeHead(503, { "content-length": "1000" });
      answer.write("{", () => socket.end());
    });
    const http = connect(server.url, depsWith({}, clock));
    expect((await failure(http)).error).toMatchObject({ trouble: "failing", upstreamStatus: 503 });

    server.reply = bytes("x".repeat(5_000_000), 429);
    expect((await failure(http)).error).toMatchObject({ trouble: "limited", upstreamStatus: 429 });

    server.reply = (_seen, answer) => {
      answer.writeHead(401);
      answer.write("{");
    };
    const slow = failure(http);
    await expect.poll(() => clock.nextWakeInMs).toBe(10_000);
    clock.advance(10_000);
    expect((await slow).error).toMatchObject({ trouble: "credential", upstreamStatus: 401 });
    expect(clock.sleeperCount).toBe(0);
  });

  it("[UPSTREAM-4] ends with its signal's reason, while it waits, while an answer comes, and before", async () => {
    const reason = new Error("enough");
    const stop = new AbortController();
    const server = await scriptedServer(() => stop.abort(reason));
    const http = connect(server.url);
    await expect(http.json(POST, stop.signal)).rejects.toBe(reason);

    const late = new AbortController();
    server.reply = (_seen, answer) => {
      answer.writeHead(200);
      answer.write("{", () => late.abort(reason));
    };
    await expect(http.json(POST, late.signal)).rejects.toBe(reason);
    await expect(http.json(POST, AbortSignal.abort(reason))).rejects.toBe(reason);
    expect(server.seen).toHaveLength(2);
  });

  it("[UPSTREAM-4] that waits for a connection has not left", async () => {
    const answers: (() => void)[] = [];
    const server = await scriptedServer((_seen, answer) => answers.push(() => answer.end("{}")));
    const http = connect(server.url);
    let sent = 0;
    const all = [1, 2, 3].map(() => http.json(POST, never, () => sent++));
    await expect.poll(() => answers.length).toBe(2);
    expect(sent).toBe(2);
    answers[0]?.();
    await expect.poll(() => answers.length).toBe(3);
    for (const answer of answers.slice(1)) answer();
    expect(await Promise.all(all)).toEqual([{}, {}, {}]);
    expect(sent).toBe(3);
  });

  it("[UPSTREAM-1] that succeeds with an error in the body has failed, and a null there means none", async () => {
    const server = await scriptedServer(json({ error: { code: 429, message: "slow down" } }));
    const http = connect(server.url);
    expect((await failure(http)).error).toMatchObject({ trouble: "limited", upstreamStatus: 200 });
    server.reply = json({ error: null, fine: 1 });
    expect(await http.json(POST, never)).toEqual({ error: null, fine: 1 });
  });

  it("fails with its own error when a reference cannot be read", async () => {
    const server = await scriptedServer();
    const gone = new Error("the file is gone");
    let reads = 0;
    const image = {
      ...reference(Buffer.from("abc")),
      lend: async <T>(work: (lent: Buffer) => Promise<T>) => {
        if (reads++ > 0) throw gone;
        return work(Buffer.from("abc"));
      },
    };
    const sending = connect(server.url).json({ ...POST, body: jsonBody({ image: dataUrlOf(image) }) }, never);
    await expect(sending).rejects.toBe(gone);
    expect(server.seen).toHaveLength(0);
  });
});

describe("an answer with images", () => {
  async function ask(reply: Reply) {
    const { url } = await scriptedServer(reply);
    const announced: number[] = [];
    let found: ImagesJson | undefined;
    const onAnswered = (length: number) => announced.push(length);
    const answer = connect(url)
      .images(POST, never, { onAnswered }, (json) => {
        found = json;
        return { images: [], modelVersion: null };
      })
      .then(() => found as ImagesJson);
    return { announced, answer };
  }

  it("is announced with its size when it is large, before it is read", async () => {
    const image = Buffer.alloc(100_000, 7).toString("base64");
    const { announced, answer } = await ask(json({ image, note: "fine" }));
    const { value, decode } = await answer;
    const { image: text, note } = value as { image: string; note: string };
    expect([note, decode(text)]).toEqual(["fine", Buffer.alloc(100_000, 7)]);
    expect(announced).toEqual([JSON.stringify({ image, note }).length]);
    const cut = await ask(bytes(Buffer.from(`{"image":"${image}`)));
    expect(await providerError(cut.answer)).toMatchObject({ trouble: "ambiguous" });
    expect(cut.announced).toHaveLength(1);
  });

  it("is read at once when it is small or a failure", async () => {
    const small = await ask(json({ error: { message: "no" } }));
    expect(await providerError(small.answer)).toBeInstanceOf(ProviderError);
    const failed = await ask(json({ error: { message: "n".repeat(100_000) } }, 503));
    expect(await providerError(failed.answer)).toMatchObject({ trouble: "failing" });
    expect([...small.announced, ...failed.announced]).toEqual([]);
  });
});
