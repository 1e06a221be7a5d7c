import { describe, expect, it } from "vitest";
import { proxiesOf } from "../../src/http/proxies.ts";

const at = (variables: Record<string, string>, target: string) =>
  proxiesOf((name) => variables[name] ?? null)(new URL(target))?.url.href ?? null;

describe("the proxies of the environment", () => {
  const P = "http://proxy.example:3128/";
  const CASES: [Record<string, string>, string, string | null][] = [
    [{ HTTPS_PROXY: "proxy.example:3128" }, "https://images.example", P],
    [{ https_proxy: "http://proxy.example:3128" }, "https://images.example", P],
    [{ https_proxy: "http://proxy.example:3128", HTTPS_PROXY: "other:1" }, "https://images.example", P],
    [{ HTTP_PROXY: " http://proxy.example:3128 " }, "http://images.example", P],
    [{ HTTPS_PROXY: "proxy.example:3128" }, "http://images.example", null],
    [{ HTTP_PROXY: "proxy.example:3128" }, "http://127.0.0.1:1", null],
    [{ HTTP_PROXY: "proxy.example:3128" }, "http://localhost:1", null],
    [{ HTTP_PROXY: "proxy.example:3128" }, "http://[::1]:1", null],
    [{ HTTP_PROXY: P, NO_PROXY: "*" }, "http://images.example", null],
    [{ HTTP_PROXY: P, no_proxy: "other, images.example" }, "http://images.example", null],
    [{ HTTP_PROXY: P, no_proxy: "example" }, "http://images.example", null],
    [{ HTTP_PROXY: P, no_proxy: ".example" }, "http://images.example", null],
    [{ HTTP_PROXY: P, no_proxy: "mages.example" }, "http://images.example", P],
    [{ HTTP_PROXY: P, no_proxy: "images.example:8080" }, "http://images.example", P],
    [{ HTTP_PROXY: P, no_proxy: "images.example:80" }, "http://images.example", null],
    [{ HTTP_PROXY: P, no_proxy: "10.0.0.0/8" }, "http://10.1.2.3", null],
    [{ HTTP_PROXY: P, no_proxy: "10.0.0.0/8" }, "http://11.1.2.3", P],
  ];
  it.each(CASES)("%j, for %s: %s", (variables, target, proxy) => {
    expect(at(variables, target)).toBe(proxy);
  });

  it.each([
    ["HTTPS_PROXY", "socks5://user:canary-proxy@proxy.example:1080"],
    ["https_proxy", "http://canary-proxy proxy"],
    ["HTTPS_PROXY", "proxy.example:99999"],
    ["HTTPS_PROXY", "/var/run/canary-proxy"],
    ["HTTPS_PROXY", "http://"],
  ])("names the variable %s that is no address of a proxy, without its value: %s", (name, value) => {
    const read = () => at({ [name]: value }, "https://images.example");
    expect(read).toThrow(expect.objectContaining({ code: "USAGE", param: name }));
    expect(read).toThrow(name);
    expect(read).not.toThrow("canary");
  });
});
