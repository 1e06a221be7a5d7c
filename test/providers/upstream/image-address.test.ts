import type { lookup } from "node:dns";
import { describe, expect, it, onTestFinished } from "vitest";
import { decodeDataUrl } from "../../../src/kernel/long-json.ts";
import { fetchImage } from "../../../src/providers/upstream/fetch-image.ts";
import { UpstreamHttp } from "../../../src/providers/upstream/http.ts";
import { bytes, depsWith, json, never, PNG, providerError, scriptedServer } from "./scripted-server.ts";
import { tunnelTo } from "./tunnel.ts";

const KEY = { authorization: "Bearer canary-image-address-key" };

/** Looks names up in a table, the answers in turn. */
function names(table: Record<string, string[]>): typeof lookup {
  const fake = (name: string, options: { all?: boolean }, done: (...result: unknown[]) => void) => {
    const address = (table[name] ?? []).shift();
    if (address === undefined) return done(Object.assign(new Error("unknown"), { code: "ENOTFOUND" }));
    const family = address.includes(":") ? 6 : 4;
    if (options.all) done(null, [{ address, family }]);
    else done(null, address, family);
  };
  return fake as unknown as typeof lookup;
}

function connect(
  baseUrl: string,
  table: Record<string, string[]> = {},
  secrets: Record<string, string> = {},
  origins: string[] = [],
) {
  const options = { name: "painter", baseUrl, concurrency: 1, origins, lookup: names(table) };
  const http = new UpstreamHttp(options, depsWith(secrets));
  onTestFinished(() => http.close());
  return http;
}

function fetched(http: UpstreamHttp, address: string, headers: Record<string, string>, signal: AbortSignal) {
  const images = http.beginImages(signal);
  onTestFinished(() => images.discard());
  return fetchImage(http, address, headers, signal, { images, decode: decodeDataUrl });
}

describe("the address of an image", () => {
  it("is refused when it is private, also in disguise", async () => {
    const inner = await scriptedServer(bytes(PNG));
    const http = connect("https://images.example/v1", {
      "evil.example": ["127.0.0.1"],
      "evil6.example": ["::ffff:127.0.0.1"],
      "meta.example": ["169.254.169.254"],
    });
    const { port } = inner;
    const hosts = [
      `127.0.0.1:${port}`,
      `localhost:${port}`,
      `[::ffff:127.0.0.1]:${port}`,
      `0x7f.1:${port}`,
      `evil.example:${port}`,
      `evil6.example:${port}`,
      "meta.example",
      "10.0.0.1",
      "100.64.0.1",
    ];
    for (const host of hosts) {
      const error = await providerError(fetched(http, `http://${host}/x.png`, KEY, never));
      expect(error, host).toMatchObject({ trouble: "ambiguous", code: "PROVIDER_ITEM_FAILED" });
    }
    expect(inner.seen).toHaveLength(0);
  });

  it("is checked when it is connected to, not before: a name may change its meaning", async () => {
    const inner = await scriptedServer(bytes(PNG));
    const table = { "rebind.example": ["93.184.216.34", "127.0.0.1"] };
    const http = connect("https://images.example", table);
    // Whoever looked before the connection would have got the first meaning.
    table["rebind.example"].shift();
    const error = await providerError(fetched(http, `http://rebind.example:${inner.port}/`, KEY, never));
    expect(error.trouble).toBe("ambiguous");
    expect(inner.seen).toHaveLength(0);
  });

  it("follows three redirects and no more, and none to a private address", async () => {
    const inner = await scriptedServer(bytes(PNG));
    const server = await scriptedServer();
    const http = connect(server.url);
    server.reply = (seen, answer) => {
      const hop = Number(seen.url.slice(1));
      if (hop === 0) answer.end(PNG);
      else answer.writeHead(302, { location: `/${hop - 1}` }).end();
    };
    expect(await fetched(http, "/3", KEY, never)).toEqual(PNG);
    expect((await providerError(fetched(http, "/4", KEY, never))).message).toContain("3 redirects");

    server.reply = bytes("", 302, { location: `${inner.url}/x.png` });
    const error = await providerError(fetched(http, "/", KEY, never));
    expect(error.message).toContain("not of the public internet");
    server.reply = bytes("", 302, { location: "file:///etc/passwd" });
    expect((await providerError(fetched(http, "/", KEY, never))).message).toContain("HTTP 302");
    expect(inner.seen).toHaveLength(0);
  });

  it("that gives no image is an ambiguous answer: the image was paid", async () => {
    const server = await scriptedServer();
    const http = connect(server.url);
    for (const reply of [bytes("<html>", 200), bytes(PNG, 404), json({}), bytes("", 200), bytes("", 500)]) {
      server.reply = reply;
      const error = await providerError(fetched(http, "/x", KEY, never));
      expect(error).toMatchObject({ trouble: "ambiguous", code: "PROVIDER_ITEM_FAILED" });
    }
    server.reply = (_seen, _answer, socket) => socket.resetAndDestroy();
    expect((await providerError(fetched(http, "/x", KEY, never))).trouble).toBe("ambiguous");
    for (const address of ["file:///etc/passwd", "ftp://x.example/1", "http://"]) {
      expect((await providerError(fetched(http, address, KEY, never))).trouble).toBe("ambiguous");
    }
  });

  it("ends with the signal's reason", async () => {
    const stop = new AbortController();
    const reason = new Error("enough");
    const server = await scriptedServer(() => stop.abort(reason));
    await expect(fetched(connect(server.url), "/x", KEY, stop.signal)).rejects.toBe(reason);
  });

  it("elsewhere is asked without the key, also behind a proxy, where its name is looked up first", async () => {
    const server = await scriptedServer(bytes(PNG));
    const proxy = await tunnelTo(server);
    const table = { "inner.example": ["10.0.0.1"], "cdn.example": ["93.184.216.34"] };
    const http = connect("http://images.example", table, { HTTP_PROXY: proxy.url });
    expect(await fetched(http, "http://cdn.example/x.png", KEY, never)).toEqual(PNG);
    expect(await fetched(http, "http://unknown-here.example/x.png", KEY, never)).toEqual(PNG);
    expect(server.seen.map(({ headers }) => headers.authorization)).toEqual([undefined, undefined]);
    const error = await providerError(fetched(http, "http://inner.example/x.png", KEY, never));
    expect(error.trouble).toBe("ambiguous");
    expect(proxy.asked).toEqual(["cdn.example:80 no key", "unknown-here.example:80 no key"]);

    server.reply = (seen, answer) =>
      seen.url === "/own"
        ? answer.writeHead(302, { location: "http://cdn.example/2" }).end()
        : answer.end(PNG);
    table["cdn.example"].push("93.184.216.34");
    expect(await fetched(http, "/own", KEY, never)).toEqual(PNG);
    const keys = server.seen
      .slice(2)
      .map(({ url, headers }) => `${url} ${headers.authorization ?? "no key"}`);
    expect(keys).toEqual([`/own ${KEY.authorization}`, "/2 no key"]);
  });
});

describe("the address of a task", () => {
  const ORIGINS = ["https://api.*.host.example", "http://127.0.0.1:1"];

  it("is of an origin that is named, with any name in place of a *", () => {
    const http = connect("https://api.host.example/v1", {}, {}, ORIGINS);
    const addresses = {
      ...{
        "/tasks/1": true,
        "https://api.host.example/x": true,
        "https://api.eu-1.host.example/x?id=1": true,
      },
      ...{
        "http://127.0.0.1:1/": true,
        "http://127.0.0.1:12/": false,
        "https://api.eu1.host.example:444/": false,
      },
      ...{ "http://api.eu.host.example/": false, "https://api.a.b.host.example/": false },
      ...{ "https://api.eu.host.example.evil.example/": false, "https://api..host.example/": false },
      ...{ "https://key@api.eu.host.example/": false, "https://evil.example/#api.eu.host.example": false },
    };
    const seen = Object.keys(addresses).map((address) => [address, http.mayAsk(address)]);
    expect(Object.fromEntries(seen)).toEqual(addresses);
  });

  it("with a * is asked at a public address only, which is checked when it is connected to", async () => {
    const table = { "api.eu.host.example": ["127.0.0.1"] };
    const http = connect("https://api.host.example/v1", table, {}, ORIGINS);
    const ask = (path: string) => providerError(http.json({ method: "GET", path, headers: KEY }, never));
    expect(await ask("https://api.eu.host.example/x")).toMatchObject({ trouble: "unreachable" });
    expect(table["api.eu.host.example"]).toEqual([]);
    expect((await ask("https://evil.example/x")).message).toContain("at another host");
    // An origin without a * is wherever the operator says.
    expect((await ask("http://127.0.0.1:1/")).message).toContain("ECONNREFUSED");
  });
});
