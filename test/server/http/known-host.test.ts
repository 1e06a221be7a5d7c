import { hostname, networkInterfaces } from "node:os";
import type { Request, Response } from "express";
import { describe, expect, it } from "vitest";
import type { ImgbatchError } from "../../../src/contract/errors.ts";
import { requireKnownHost } from "../../../src/server/http/host.ts";
import { expectProperAnswer } from "../../support/error-body.ts";
import { exchange } from "../../support/raw-http.ts";
import { startTestService, type TestService } from "../../support/service.ts";

const start = (server: object = {}, host = "127.0.0.1") =>
  // Without the console there is nothing at the root.
  startTestService({ workers: false, config: { server, features: { console: false } }, host });

/** Asks over a socket, with these lines behind the first one; answers status and code. */
async function ask({ url }: TestService, target: string, lines: readonly string[], version = "1.1") {
  const head = [`GET ${target} HTTP/${version}`, ...lines, "Connection: close", "", ""];
  const answer = await exchange(url, Buffer.from(head.join("\r\n"), "latin1"));
  const facts = { status: answer?.status ?? 0, requestId: answer?.headers.get("x-request-id") };
  return [facts.status, expectProperAnswer({ ...facts, body: String(answer?.body) })];
}

const askFor = (service: TestService, host: string) => ask(service, "/healthz", [`Host: ${host}`]);
const TAKEN = [200, null];
const REFUSED = [421, "MISDIRECTED_REQUEST"];
const MALFORMED = [400, "MALFORMED_REQUEST"];

describe("the Host of a request", () => {
  it("[EDGE-1] is taken when it is loopback, in every spelling and with any port", async () => {
    const service = await start();
    for (const host of [
      new URL(service.url).host,
      "localhost",
      "LocalHost:1",
      "localhost.:8787",
      "localhost:",
      "127.0.0.1",
      "127.255.255.254:65535",
      "[::1]",
      "[0:0:0:0:0:0:0:1]:80",
      "[::ffff:127.0.0.1]",
      "[::1%25lo]:8787",
      "2130706433",
    ]) {
      expect([host, await askFor(service, host)]).toEqual([host, TAKEN]);
    }
  });

  it("[EDGE-1] is refused when it is any other name or address", async () => {
    const service = await start();
    for (const host of [
      "evil.example",
      "evil.example:8787",
      "localhost.evil.example",
      "127.evil.example",
      "127.0.0.1.evil.example",
      "imgbatch",
      "sub.localhost",
      "0.0.0.0",
      "192.0.2.7",
      "[::]",
      "[2001:db8::1]",
      "[::ffff:192.0.2.7]",
    ]) {
      expect([host, await askFor(service, host)]).toEqual([host, REFUSED]);
    }
  });

  it("[EDGE-1] is looked at on every path, before the key, and the error has the style of the path", async () => {
    const service = await start();
    const other = ["Host: evil.example", `Authorization: Bearer ${service.credentials.api_key}`];
    for (const path of ["/readyz", "/metrics", "/openapi.json", "/v1/images/batches", "/v1/models", "/no"]) {
      expect([path, await ask(service, path, other)]).toEqual([path, REFUSED]);
    }
    const head = `GET /v1beta/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`;
    const { error } = JSON.parse(String((await exchange(service.url, head))?.body));
    expect(error).toMatchObject({ code: 421, status: "INVALID_ARGUMENT" });
    expect(error.message).toContain("`server.publicUrl`");
  });

  it("[EDGE-1] may be that of the public URL, with any port", async () => {
    const service = await start({ publicUrl: "https://Images.Example.org/pictures" });
    for (const host of [
      "images.example.org",
      "IMAGES.example.org.",
      "images.example.org:8443",
      "localhost",
    ]) {
      expect([host, await askFor(service, host)]).toEqual([host, TAKEN]);
    }
    expect(await askFor(service, "www.images.example.org")).toEqual(REFUSED);
    const ported = await start({ publicUrl: "http://imgbatch:8787" });
    expect(await askFor(ported, "imgbatch")).toEqual(TAKEN);
  });

  it("[EDGE-1] may be any address, and the machine's name, where all addresses are listened on", async () => {
    const own = Object.values(networkInterfaces()).flatMap((infos = []) => infos);
    const hosts = own.map(({ address, family }) => (family === "IPv6" ? `[${address}]` : address));
    const service = await start({}, "0.0.0.0");
    for (const host of [...hosts, "192.0.2.7:80", "[2001:db8::1]", "0.0.0.0", hostname().toUpperCase()]) {
      expect([host, await askFor(service, host)]).toEqual([host, TAKEN]);
    }
    expect(await askFor(service, "evil.example")).toEqual(REFUSED);
    expect(await askFor(service, "imgbatch:8787")).toEqual(REFUSED);
  });

  it.each([
    ["images.lan", "::ffff:192.0.2.7", "192.0.2.7"],
    ["images.lan", "2001:db8::7", "[2001:DB8:0::7]"],
    ["images.lan", "192.0.2.7", "Images.LAN:80"],
    ["2001:db8::7", "2001:db8::7", "[2001:db8::7]:8787"],
    ["fe80::1%eth0", "fe80::1%eth0", "[fe80::1]"],
  ])("[EDGE-1] may be what is listened on, a name or an address: %s", (host, localAddress, sent) => {
    const refusalOf = (header: string) => {
      const request = {
        httpVersion: "1.1",
        headersDistinct: { host: [header] },
        get: () => header,
        socket: { localAddress },
      };
      const listener = requireKnownHost({ host, publicUrl: null });
      try {
        listener(request as unknown as Request, {} as Response, () => {});
        return null;
      } catch (error) {
        return (error as ImgbatchError).code;
      }
    };
    expect([refusalOf(sent), refusalOf("192.0.2.8")]).toEqual([null, "MISDIRECTED_REQUEST"]);
  });
});

describe("a Host that is not well formed", () => {
  it.each([
    ["nothing", ""],
    ["a user", "localhost@evil.example"],
    ["a user in front of a known host", "evil.example@localhost"],
    ["a password", "a:b@localhost"],
    ["a path", "localhost/x"],
    ["a query", "localhost?x"],
    ["a fragment", "localhost#x"],
    ["a backslash", "localhost\\evil.example"],
    ["a blank", "localhost evil.example"],
    ["a list", "localhost, evil.example"],
    ["an encoded NUL", "evil.example%00.localhost"],
    ["a tab", "evil.example\tlocalhost"],
    ["a port that is no number", "localhost:http"],
    ["two ports", "localhost:80:80"],
    ["an address without brackets", "::1"],
    ["half a bracket", "[::1"],
    ["an address that is none", "[::g]"],
    ["too large a number", "256.0.0.1"],
    ["a port alone", ":8787"],
  ])("is refused: %s", async (_, host) => {
    expect(await askFor(await start(), host)).toEqual(MALFORMED);
  });

  it("is one that is missing or repeated, save in HTTP/1.0", async () => {
    const service = await start();
    expect(await ask(service, "/healthz", [])).toEqual(MALFORMED);
    expect(await ask(service, "/healthz", ["Host: localhost", "Host: localhost"])).toEqual(MALFORMED);
    expect(await ask(service, "/healthz", ["Host: localhost", "Host: evil.example"])).toEqual(MALFORMED);
    expect(await ask(service, "/healthz", [], "1.0")).toEqual(TAKEN);
    expect(await ask(service, "/healthz", ["Host: evil.example"], "1.0")).toEqual(REFUSED);
    const many = Array.from({ length: 2100 }, () => "a:1");
    expect(await ask(service, "/healthz", [...many, "Host: localhost"])).toEqual(TAKEN);
  });
});

describe("an absolute target", () => {
  it("has the host that counts, in the place of the Host header", async () => {
    const service = await start();
    for (const [target, host, outcome] of [
      ["http://localhost/healthz", "evil.example", TAKEN],
      ["HTTPS://LOCALHOST:1/healthz", "localhost", TAKEN],
      ["http://evil.example/healthz", "localhost", REFUSED],
      ["http://localhost", "localhost", [404, "NOT_FOUND"]],
      ["http://localhost?api_key=x", "localhost", [400, "BATCH_IMAGE_INVALID_QUERY"]],
      ["http://localhost@evil.example/healthz", "localhost", MALFORMED],
      ["http://user:word@localhost/healthz", "localhost", MALFORMED],
      ["http:///healthz", "localhost", MALFORMED],
      ["http://[/", "localhost", MALFORMED],
      ["http://a%zz/healthz", "localhost", MALFORMED],
      ["ftp://localhost/healthz", "localhost", MALFORMED],
      ["ftp://[/", "localhost", MALFORMED],
    ] as const) {
      expect([target, await ask(service, target, [`Host: ${host}`])]).toEqual([target, outcome]);
    }
    expect(await ask(service, "http://localhost/healthz", [])).toEqual(MALFORMED);
  });

  it("is routed as its path is, with its errors in the style of that path", async () => {
    const service = await start();
    const key = service.credentials.api_key;
    const answer = async (target: string) => {
      const head = `GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
      return JSON.parse(String((await exchange(service.url, head))?.body));
    };
    expect((await answer("http://localhost/v1beta/models/x")).error.status).toBe("UNAUTHENTICATED");
    expect((await answer(`http://localhost/v1beta/models?key=${key}`)).models).toEqual(expect.any(Array));
  });
});
