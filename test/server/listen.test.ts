import { connect } from "node:net";
import express from "express";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Log } from "../../src/kernel/log.ts";
import { listen } from "../../src/server/listen.ts";
import { expectProperAnswer } from "../support/error-body.ts";
import { converse, exchange, requestText } from "../support/raw-http.ts";
import { startTestService } from "../support/service.ts";

const BATCHES = "/v1/images/batches";
const HEAD = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";

async function expectAlive(url: string): Promise<void> {
  const answer = await fetch(`${url}/healthz`);
  expect([answer.status, await answer.json()]).toMatchObject([200, { status: "ok" }]);
}

async function listening(http: object) {
  const lines: object[] = [];
  const note = (message: string, facts?: object) => lines.push({ message, ...facts });
  const log: Log = { debug: note, info: note, warn: note, error: note };
  const server = await listen(express(), { host: "127.0.0.1", port: 0 }, { log, http });
  onTestFinished(() => server.close(0));
  return { url: server.url, lines };
}

describe("what is no request", () => {
  it.each([
    ["no HTTP at all", "hello\r\n\r\n", 400, "MALFORMED_REQUEST"],
    ["TLS", Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]), 400, "MALFORMED_REQUEST"],
    ["an unknown method", "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "MALFORMED_REQUEST"],
    ["a control character in a header", `${HEAD}A: \x01\r\n\r\n`, 400, "MALFORMED_REQUEST"],
    ["two lengths", `${HEAD}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`, 400, "MALFORMED_REQUEST"],
    ["a length that is no number", `${HEAD}Content-Length: 1e3\r\n\r\n`, 400, "MALFORMED_REQUEST"],
    [
      "chunks that are not last",
      `${HEAD}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
      400,
      "MALFORMED_REQUEST",
    ],
    ["headers without end", `${HEAD}A: ${"x".repeat(20_000)}\r\n\r\n`, 431, "REQUEST_HEADERS_TOO_LARGE"],
    [
      "a path without end",
      `GET /${"x".repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      431,
      "REQUEST_HEADERS_TOO_LARGE",
    ],
    ["a tunnel", "CONNECT example.com:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "NOT_FOUND"],
  ])("%s gets the error body and a request id", async (_, bytes, status, code) => {
    const service = await startTestService({ workers: false });
    const answer = await exchange(service.url, bytes);
    const facts = {
      status: answer?.status ?? 0,
      requestId: answer?.headers.get("x-request-id"),
      body: String(answer?.body),
    };
    expect([facts.status, expectProperAnswer(facts)]).toEqual([status, code]);
    await expectAlive(service.url);
  });

  it.each([
    [
      "POST /v1beta/models/x:generateContent HTTP/1.1\r\nHost: localhost\r\nA: \x01\r\n\r\n",
      "INVALID_ARGUMENT",
    ],
    [
      `POST /v1/models/x%3AgenerateContent?a HTTP/1.1\r\nA: ${"x".repeat(20_000)}\r\n\r\n`,
      "INVALID_ARGUMENT",
    ],
    ["GET /v1/images/batches?at=/v1beta/ HTTP/1.1\r\nHost: localhost\r\nA: \x01\r\n\r\n", undefined],
    ["GET /v1betamax HTTP/1.1\r\nHost: localhost\r\nA: \x01\r\n\r\n", undefined],
    ["hello /v1beta/models HTTP/1.1\r\n\r\n", undefined],
  ])("the style of the body is that of the path, where it can be read (%#)", async (bytes, status) => {
    const service = await startTestService({ workers: false });
    const { error } = JSON.parse(String((await exchange(service.url, bytes))?.body));
    expect([error.status, typeof error.code]).toEqual([status, status === undefined ? "string" : "number"]);
  });

  it.each([
    ["an expectation that nobody knows", `${HEAD}Expect: miracles\r\n\r\n`],
    ["an upgrade that is not offered", `${HEAD}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n`],
    ["a body that nobody asked for", `${HEAD}Content-Length: 3\r\n\r\nabc`],
  ])("a request with %s is answered", async (_, bytes) => {
    const service = await startTestService({ workers: false });
    const answer = await exchange(service.url, bytes);
    expect(answer?.status).toBe(200);
  });

  it.each([
    ["/v1/images/batches", 200],
    ["/v1//images/batches", 200],
    ["/v1/../v1/images/batches", 404],
    ["/v1%2Fimages/batches", 404],
    ["/v1/images/batches/%2e%2e/batches", 404],
    ["/v1/images/batches/;", 404],
    ["/v1/images/batches/%00", 404],
    ["/v1/images/batches\\models", 404],
    ["//localhost/v1/images/batches", 404],
    ["*", 404],
    ["\\v1/images/batches", 400],
    ["/v1/images/batches/\0", 400],
    ["/v1/images/batches/\u00e9", 400],
    ["/v1/images/batches/a b", 400],
  ])("a path is taken as it is written: %j is %i", async (target, status) => {
    const service = await startTestService({ workers: false });
    const authorization = ["Authorization", `Bearer ${service.credentials.api_key}`] as const;
    const answer = await exchange(service.url, requestText("GET", target, [authorization]));
    const requestId = answer?.headers.get("x-request-id");
    const facts = { status: answer?.status ?? 0, requestId, body: String(answer?.body) };
    expect(facts.status).toBe(status);
    expectProperAnswer(facts);
  });

  it.each<[string, [string, string][], string, number]>([
    [
      "length and chunks",
      [
        ["Content-Length", "5"],
        ["Transfer-Encoding", "chunked"],
      ],
      "0\r\n\r\n",
      400,
    ],
    [
      "chunks twice",
      [
        ["Transfer-Encoding", "chunked"],
        ["Transfer-Encoding", "chunked"],
      ],
      "0\r\n\r\n",
      400,
    ],
    ["a coding that nobody knows", [["Transfer-Encoding", "xchunked"]], "0\r\n\r\n", 400],
    ["no coding", [["Transfer-Encoding", "identity"]], "{}", 400],
    ["compressed chunks", [["Transfer-Encoding", "gzip, chunked"]], "2\r\n{}\r\n0\r\n\r\n", 415],
    [
      "the same length twice",
      [
        ["Content-Length", "2"],
        ["Content-Length", "2"],
      ],
      "{}",
      400,
    ],
    ["a list of lengths", [["Content-Length", "2, 2"]], "{}", 400],
    ["a length above all numbers", [["Content-Length", "99999999999999999999"]], "{}", 400],
    ["a length that only few numbers have", [["Content-Length", "9007199254740993"]], "", 413],
    ["a line that goes on in the next", [["A", "b\r\n c"]], "", 400],
  ])("a request with %s is refused", async (_, headers, body, status) => {
    const service = await startTestService({ workers: false });
    const authorization: [string, string] = ["Authorization", `Bearer ${service.credentials.api_key}`];
    const bytes = requestText("POST", BATCHES, [authorization, ...headers], body);
    // A length that is not kept would be waited for.
    const answer = await converse(service.url, (socket) => {
      socket.write(bytes);
      socket.once("data", () => socket.end());
    });
    const requestId = answer?.headers.get("x-request-id");
    const facts = { status: answer?.status ?? 0, requestId, body: String(answer?.body) };
    expect(facts.status).toBe(status);
    expectProperAnswer(facts);
    await expectAlive(service.url);
  });

  it("many requests at once on one connection are answered in their order", async () => {
    const service = await startTestService({ workers: false });
    const ids = Array.from({ length: 50 }, (_, i) => `r${i}`);
    const requests = ids.map((id, i) => {
      const last = i === ids.length - 1 ? "Connection: close\r\n" : "";
      return `GET ${BATCHES}/${id} HTTP/1.1\r\nHost: localhost\r\nx-request-id: ${id}\r\n${last}\r\n`;
    });
    const answer = await exchange(service.url, requests.join(""));
    const answered = [...(answer?.text ?? "").matchAll(/^x-request-id: (.+)\r$/gim)].map((match) => match[1]);
    expect(answered).toEqual(ids);
  });

  it("a broken body behind good headers ends its connection, and nothing else", async () => {
    const service = await startTestService({ workers: false });
    const authorization = ["Authorization", `Bearer ${service.credentials.api_key}`] as const;
    const chunked = ["Transfer-Encoding", "chunked"] as const;
    for (const body of ["zz\r\nabc\r\n", "5\r\nabc", "-1\r\n\r\n", `${"f".repeat(40)}\r\n`]) {
      const answer = await converse(service.url, (socket) => {
        socket.end(requestText("POST", BATCHES, [authorization, chunked], body));
      });
      if (answer) expect(answer.status).toBe(400);
    }
    await expectAlive(service.url);
  });

  it("headers that do not end in time get an error and a log line", async () => {
    const { url, lines } = await listening({ headersTimeout: 100, connectionsCheckingInterval: 20 });
    const answer = await converse(url, (socket) => socket.write("GET / HTTP/1.1\r\nHost:"));
    const requestId = answer?.headers.get("x-request-id");
    const facts = { status: answer?.status ?? 0, requestId, body: String(answer?.body) };
    expect([facts.status, expectProperAnswer(facts)]).toEqual([408, "REQUEST_TIMEOUT"]);
    expect(lines).toEqual([expect.objectContaining({ code: "REQUEST_TIMEOUT", request_id: requestId })]);
  });
});

describe("a connection", () => {
  it("that sends a body without end where none is read is closed after its answer", async () => {
    const service = await startTestService({ workers: false });
    const headers: [string, string][] = [
      ["Authorization", `Bearer ${service.credentials.api_key}`],
      ["Transfer-Encoding", "chunked"],
    ];
    const piece = Buffer.concat([
      Buffer.from("100000\r\n"),
      Buffer.alloc(1024 * 1024, 32),
      Buffer.from("\r\n"),
    ]);
    for (const [method, path] of [
      ["GET", BATCHES],
      ["POST", "/nowhere"],
    ] as const) {
      let sent = 0;
      const answer = await converse(service.url, (socket) => {
        socket.write(requestText(method, path, headers));
        const more = () => {
          while (!socket.destroyed && socket.write(piece)) sent++;
          sent++;
        };
        socket.on("drain", more);
        more();
      });
      expect([path, answer?.status]).toEqual([path, method === "GET" ? 200 : 404]);
      expect(sent).toBeLessThan(400);
    }
  });

  it("that was kept open does not hold up the end of the service", async () => {
    const service = await startTestService({ workers: false });
    const kept = connect(Number(new URL(service.url).port), "127.0.0.1");
    const closed = new Promise((resolve) => kept.once("close", resolve));
    kept.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await new Promise((resolve) => kept.once("data", resolve));
    await service.close(60_000);
    await closed;
  });
});
