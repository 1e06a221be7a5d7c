import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { Connections, send } from "../../src/http/transport.ts";
import { png } from "../support/fake-service.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";

const OK = "HTTP/1.1 200 OK\r\n";
const WHOLE = `${OK}content-length: 4\r\n\r\nfine`;
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;
const PACKED = gzipSync("a".repeat(200_000));

const reset = (socket: Socket) => void socket.resetAndDestroy();
const close = (socket: Socket) => void socket.end();
const soon = (act: (socket: Socket) => void) => (socket: Socket) => void setTimeout(act, 5, socket);
const more = (text: string) => soon((socket) => socket.write(text));

/** What is written at once, and what happens then. */
const CASES: Record<string, [first: string | Buffer, then?: (socket: Socket) => void]> = {
  "no HTTP at all": ["\0\xff\r\n\r\n\r\n", close],
  "garbage behind the headers of another answer": [`${WHOLE}\0\0garbage\r\n\r\n`],
  "garbage a moment after a whole answer": [WHOLE, more("\0\0garbage\r\n\r\n")],
  "headers without an end": [`${OK}a: ${"a".repeat(200_000)}`],
  "100,000 headers": [`${OK}${"a: b\r\n".repeat(100_000)}\r\n`],
  "a header name that is none": [`${OK}a b\0: c\r\n\r\n`],
  "two lengths": [`${OK}content-length: 4\r\ncontent-length: 5\r\n\r\nfine`],
  "a negative length": [`${OK}content-length: -1\r\n\r\nfine`],
  "a length and chunks": [
    `${OK}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n`,
  ],
  "a chunk size that is no number": [`${CHUNKED}xyz\r\nfine\r\n`],
  "a chunk size beyond all numbers": [`${CHUNKED}fffffffffffffffffff\r\nfine\r\n`],
  "a chunk that is longer than its size": [`${CHUNKED}4\r\nfine and more\r\n0\r\n\r\n`],
  "a bad chunk later": [`${CHUNKED}4\r\nfine\r\n`, more("-5\r\n\0\r\n")],
  "trailers without an end": [`${CHUNKED}0\r\na: ${"a".repeat(200_000)}`],
  "a bad trailer": [`${CHUNKED}4\r\nfine\r\n0\r\na\0b\r\n\r\n`],
  "an upgrade": [`HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n\0\0`],
  "an upgrade with 200": [`${OK}connection: upgrade\r\nupgrade: other\r\ncontent-length: 4\r\n\r\nfine`],
  "100,000 answers of 1xx": ["HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n".repeat(100_000), close],
  "many leaves to go on": [`${"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)}${WHOLE}`],
  "HTTP/1.0 until its end": ["HTTP/1.0 200 OK\r\n\r\nfine", close],
  "HTTP/1.0, kept open, then reset": ["HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\nfine", soon(reset)],
  "a reset at once": ["", reset],
  "a reset within the headers": [OK, soon(reset)],
  "a reset within the body": [`${OK}content-length: 100\r\n\r\nfine`, soon(reset)],
  "a reset within a packed body": [
    Buffer.concat([
      Buffer.from(`${OK}content-encoding: gzip\r\ncontent-length: 9000\r\n\r\n`),
      PACKED.subarray(0, 100),
    ]),
    soon(reset),
  ],
  "a packed body that is none": [`${OK}content-encoding: br\r\ncontent-length: 4\r\n\r\nfine`],
  "an end within a chunk": [`${CHUNKED}ff\r\nfine`, close],
  "two answers at once": [WHOLE + WHOLE],
  "a second answer later": [WHOLE, more(WHOLE)],
  "a reset behind a whole answer": [WHOLE, soon(reset)],
  "a status that is none": ["HTTP/1.1 99999 OK\r\n\r\n"],
  "another version": ["HTTP/9.9 200 OK\r\ncontent-length: 4\r\n\r\nfine"],
  "no content with content": ["HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nfine"],
  "a redirect without an address": ["HTTP/1.1 302 Found\r\n\r\n", close],
};

const small = { method: "POST", body: "{}" };
const large = { method: "POST", body: Buffer.alloc(8 * 2 ** 20) };
/** How the caller treats the answer. */
const READERS = ["reads", "leaves", "cancels", "reads late"] as const;

/** Resolves when the request has ended in any way. */
async function ask(url: string, connections: Connections, sending: object, reader: string): Promise<void> {
  const stop = new AbortController();
  const end = setTimeout(() => stop.abort(), 300);
  try {
    const answer = await send(url, { ...sending, signal: stop.signal }, connections);
    if (reader === "cancels") return answer.cancel();
    if (reader !== "reads") await new Promise((resolve) => setTimeout(resolve, 20));
    if (reader === "leaves") return answer.cancel();
    for await (const _ of answer.body);
  } catch {
    // Any error is fine that reaches the caller.
  } finally {
    clearTimeout(end);
  }
}

describe.each(["server", "proxy"])("no answer of a %s ends the process, or any other request", (whose) => {
  it.each(Object.entries(CASES))("%s", async (_, [first, then]) => {
    const outside: unknown[] = [];
    const note = (error: unknown) => outside.push(error);
    process.on("uncaughtException", note).on("unhandledRejection", note);
    onTestFinished(() => void process.off("uncaughtException", note).off("unhandledRejection", note));
    const hostile = createServer((socket) => {
      socket.on("error", () => {});
      // Before the body has come: a large one never does.
      socket.once("data", () => {
        socket.pause();
        socket.write(first);
        then?.(socket);
      });
    });
    const url = new URL(await listening(hostile));
    const proxy = { url, shown: url.href };
    const connections = new Connections(whose === "proxy" ? { proxies: () => proxy } : {});
    onTestFinished(() => connections.close());
    const bodies = whose === "proxy" ? [small] : [small, large];
    const sendings = bodies.flatMap((sending) => READERS.map((reader) => ({ sending, reader })));
    const target = whose === "proxy" ? "https://images.example" : url.href;
    // Twice: the second one may get the connection of the first.
    for (let i = 0; i < 2; i++)
      await Promise.all(sendings.map(({ sending, reader }) => ask(target, connections, sending, reader)));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(outside).toEqual([]);
  });
});

const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
/** A defect of Node's own client, which no request could catch. */
const DEFECT = `
  const { IncomingMessage: { prototype } } = require("node:http");
  const { _addHeaderLines: add } = prototype;
  prototype._addHeaderLines = function (headers, n) {
    if (headers.includes("x-defect")) throw new Error("a defect of the parser");
    return add.call(this, headers, n);
  };
`;

it("[UPSTREAM-5] an error that Node's client throws outside of every call ends its request, and no other", async () => {
  const cwd = await tempDir();
  let answered = 0;
  const upstream = createHttpServer(async (request, response) => {
    const body = await text(request);
    if (body.includes("an owl")) return void response.setHeader("x-defect", "1").end("{}");
    // Under way while the other one ends.
    setTimeout(() => {
      answered++;
      response.end(JSON.stringify({ data: [{ b64_json: png("fox").toString("base64") }] }));
    }, 500);
  });
  const baseUrl = await listening(upstream);
  const provider = { type: "openai", name: "painter", baseUrl, free: true, models: ["m"] };
  const model = { id: "m", family: "native", batch: true, realtime: true, ratios: "extended", sizes: ["1K"] };
  const config = { providers: [provider], models: [{ ...model, prices: { "1K": 0.01 } }] };
  await writeFile(join(cwd, "c.json"), JSON.stringify(config));
  await writeFile(join(cwd, "p.txt"), "a fox\nan owl\n");
  await writeFile(join(cwd, "defect.cjs"), DEFECT);
  const words = [
    "generate",
    "--file",
    "p.txt",
    "--config",
    "c.json",
    "--data",
    "data",
    "--json",
    "--retries",
    "0",
  ];
  const stdout = await new Promise<string>((resolve) => {
    const env = { PATH: process.env.PATH, HOME: cwd };
    // A command that hangs must not outlive the test.
    const options = { cwd, env, timeout: 20_000, killSignal: "SIGKILL" } as const;
    execFile(process.execPath, ["--require", "./defect.cjs", BIN, ...words], options, (_, out) =>
      resolve(out),
    );
  });
  const { items, counts } = JSON.parse(stdout);
  expect(counts).toMatchObject({ total: 2, success: 1, pending: 0 });
  expect([items[0].files.length, items[1].error.message]).toEqual([1, expect.stringMatching(/defect|broke/)]);
  expect(answered).toBe(1);
});
