import { describe, expect, it, onTestFinished } from "vitest";
import { UpstreamHttp } from "../../../src/providers/upstream/http.ts";
import { closedPort, depsWith, json, never, providerError, scriptedServer } from "./scripted-server.ts";
import { tunnelTo } from "./tunnel.ts";

const GET = { method: "GET", path: "/models", headers: { "x-key": "abc" } } as const;

function connect(baseUrl: string, secrets: Record<string, string>): UpstreamHttp {
  const http = new UpstreamHttp({ name: "painter", baseUrl, concurrency: 1 }, depsWith(secrets));
  onTestFinished(() => http.close());
  return http;
}

describe("a proxy of the environment", () => {
  it.each(["http_proxy", "HTTP_PROXY"])("leads to a public upstream: %s", async (variable) => {
    const server = await scriptedServer(json({ fine: true }));
    const proxy = await tunnelTo(server);
    const http = connect("http://images.example", { [variable]: proxy.url });
    expect(await http.json(GET, never)).toEqual({ fine: true });
    expect(proxy.asked).toEqual(["images.example:80 no key"]);
    expect(server.seen[0]?.headers).toMatchObject({ host: "images.example", "x-key": "abc" });
  });

  it("is not asked for an upstream on this machine, in a private network, or in NO_PROXY", async () => {
    const server = await scriptedServer(json({ fine: true }));
    const proxy = await tunnelTo(server);
    expect(await connect(server.url, { HTTP_PROXY: proxy.url }).json(GET, never)).toEqual({ fine: true });
    for (const [host, no_proxy] of [
      ["no-such-box.local", ""],
      ["images.invalid", "example,images.invalid"],
    ] as const) {
      const error = await providerError(
        connect(`http://${host}`, { HTTP_PROXY: proxy.url, no_proxy }).json(GET, never),
      );
      expect(error.trouble).toBe("unreachable");
    }
    expect(proxy.asked).toEqual([]);
  });

  it("that refuses has let nothing through", async () => {
    const proxy = await tunnelTo({ port: 0 }, 502);
    let sent = 0;
    const http = connect("http://images.example", { HTTP_PROXY: proxy.url });
    const error = await providerError(http.json(GET, never, () => sent++));
    expect(error.trouble).toBe("unreachable");
    expect(error.message).toContain(
      `the proxy ${new URL(proxy.url).host} (HTTP_PROXY) refuses the connection (HTTP 502)`,
    );
    expect(sent).toBe(0);
  });

  it("that cannot be reached is named, and nothing was sent", async () => {
    const port = await closedPort();
    let sent = 0;
    const http = connect("https://images.example", { https_proxy: `127.0.0.1:${port}` });
    const error = await providerError(http.json(GET, never, () => sent++));
    expect(error.message).toContain(
      `the proxy 127.0.0.1:${port} (https_proxy) cannot be reached: connection refused`,
    );
    expect([error.trouble, sent]).toEqual(["unreachable", 0]);
  });
});
