import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { expect, it, onTestFinished } from "vitest";
import { type Answer, boundedText, Connections, send } from "../../src/http/transport.ts";
import { CERTIFICATE, KEY } from "../support/certificate.ts";
import { listening } from "../support/listening.ts";

const textOf = ({ body }: Answer) => boundedText(body, 1000);
const never = new AbortController().signal;

async function serve(listener: RequestListener) {
  const server = createServer(listener);
  const sockets: unknown[] = [];
  server.on("connection", (socket) => sockets.push(socket));
  return { url: `${await listening(server)}/`, sockets };
}

const pack = { gzip: gzipSync, br: brotliCompressSync };
for (const [coding, packed] of Object.entries(pack)) {
  it(`an answer that was packed with ${coding} is unpacked`, async () => {
    const { url } = await serve(({ headers }, response) => {
      const isTaken = String(headers["accept-encoding"]).split(", ").includes(coding);
      response.writeHead(200, { "content-encoding": coding }).end(packed(`taken: ${isTaken}`));
    });
    expect(await textOf(await send(url, { signal: never }))).toBe("taken: true");
  });
}

it("an answer in an unknown coding comes as it is", async () => {
  const { url } = await serve((_, response) => {
    response.writeHead(200, { "content-encoding": "constructor" }).end("as it is");
  });
  expect(await textOf(await send(url, { signal: never }))).toBe("as it is");
});

it("only codings that are read without doubt are asked for", async () => {
  const { url } = await serve(({ headers }, response) => response.end(headers["accept-encoding"]));
  expect(await textOf(await send(url, { signal: never }))).toBe("gzip, br");
});

it("a change to another protocol that nobody asked for ends the request", async () => {
  const { url } = await serve(({ socket }) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
  });
  await expect(send(url, { signal: never })).rejects.toMatchObject({ code: "CLOSED", isSent: true });
});

it("a connection is used again after an answer that was read, and not after one that was left", async () => {
  const { url, sockets } = await serve((request, response) => response.end(request.method));
  for (const method of ["GET", "POST", "DELETE"])
    expect(await textOf(await send(url, { method, signal: never }))).toBe(method);
  expect(sockets).toHaveLength(1);
  (await send(url, { signal: never })).cancel();
  await textOf(await send(url, { signal: never }));
  expect(sockets).toHaveLength(2);
});

it("an answer that comes before the whole body counts, and what is left of the body is not sent", async () => {
  const { url, sockets } = await serve((_, response) => response.writeHead(413).end("too large"));
  let pieces = 0;
  const open = async function* () {
    for (;;) {
      pieces++;
      yield Buffer.alloc(64 * 1024);
      await new Promise(setImmediate);
    }
  };
  const answer = await send(url, { method: "POST", body: { bytes: 1e9, open }, signal: never });
  expect([answer.status, answer.ok, await textOf(answer)]).toEqual([413, false, "too large"]);
  expect(await textOf(await send(url, { signal: never }))).toBe("too large");
  expect(sockets).toHaveLength(2);
  const sent = pieces;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(pieces).toBe(sent);
});

it("an abort ends a request, and an answer in the middle of its body", async () => {
  const { url } = await serve((request, response) => {
    if (request.url === "/silent") return;
    response.writeHead(200, { "content-length": 10 }).write("half");
  });
  const stop = new AbortController();
  const silent = expect(send(`${url}silent`, { signal: stop.signal })).rejects.toThrow();
  const half = await send(url, { signal: stop.signal });
  const read = expect(textOf(half)).rejects.toThrow();
  stop.abort();
  await Promise.all([silent, read]);
});

it("ends at its abort even while its connection is not made, and closes that then", async () => {
  const lookups: (() => void)[] = [];
  const lookup = (_host: string, _options: unknown, done: (error: null, addresses: unknown[]) => void) => {
    lookups.push(() => done(null, [{ address: "127.0.0.1", family: 4 }]));
  };
  const { url, sockets } = await serve((_, response) => response.end());
  const connections = new Connections({ most: 1, lookup: lookup as never });
  onTestFinished(() => connections.close());
  const stop = new AbortController();
  const address = url.replace("127.0.0.1", "images.example");
  // The second one waits for the connection of the first.
  const ended = [1, 2].map(() =>
    expect(send(address, { signal: stop.signal }, connections)).rejects.toThrow("enough"),
  );
  await expect.poll(() => lookups.length).toBe(1);
  stop.abort(new Error("enough"));
  await Promise.all(ended);
  lookups[0]?.();
  const answer = send(address, { signal: never }, connections);
  await expect.poll(() => lookups.length).toBeGreaterThan(1);
  for (const go of lookups) go();
  expect(await textOf(await answer)).toBe("");
  expect(sockets.length).toBeLessThan(3);
});

it("a request whose header cannot be written was not sent, and takes no connection from the next one", async () => {
  const { url } = await serve((_, response) => response.end("fine"));
  const connections = new Connections({ most: 1 });
  onTestFinished(() => connections.close());
  for (let i = 0; i < 3; i++)
    await expect(send(url, { headers: { key: "a\r" }, signal: never }, connections)).rejects.toMatchObject({
      code: "ERR_INVALID_CHAR",
      isSent: false,
    });
  expect(await textOf(await send(url, { signal: never }, connections))).toBe("fine");
});

it("a certificate of an unknown authority is told with the variable that names the authority of a network", async () => {
  const server = createTlsServer({ key: KEY, cert: CERTIFICATE }, (_, response) => response.end());
  const { port } = new URL(await listening(server));
  await expect(send(`https://localhost:${port}/`, { signal: never })).rejects.toMatchObject({
    code: "CERTIFICATE",
    isSent: false,
    message: expect.stringContaining("export NODE_EXTRA_CA_CERTS="),
  });
});

it("closing the connections ends requests that are under way", async () => {
  const { url } = await serve(() => {});
  const connections = new Connections({ most: 1 });
  const waiting = [1, 2].map(() =>
    expect(send(url, { signal: never }, connections)).rejects.toMatchObject({ code: "CLOSED" }),
  );
  await new Promise((resolve) => setTimeout(resolve, 20));
  await connections.close();
  await Promise.all(waiting);
});
