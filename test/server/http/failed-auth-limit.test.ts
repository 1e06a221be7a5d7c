import { describe, expect, it } from "vitest";
import { FakeClock } from "../../support/fake-clock.ts";
import { startTestService } from "../../support/service.ts";

const DEFAULT = 30;

describe("wrong keys behind a proxy", () => {
  /** How many wrong keys are answered with 401 before the first 429, when each request has one of these headers. */
  async function triesOf(trustProxy: unknown, forwarded: (n: number) => string | null, limit = 0) {
    const config = { server: { trustProxy }, limits: { failedAuthPerMinute: limit } };
    const service = await startTestService({ workers: false, config, clock: new FakeClock() });
    for (let n = 0; n < DEFAULT + 5; n++) {
      const header = forwarded(n);
      const path = n % 2 === 0 ? "/v1beta/models" : "/v1/images/batches";
      const headers = { authorization: "Bearer wrong", ...(header && { "x-forwarded-for": header }) };
      const answer = await fetch(service.url + path, { headers });
      await answer.arrayBuffer();
      if (answer.status === 429) return n;
      expect(answer.status).toBe(401);
    }
    return null;
  }

  it.each<[string, unknown, (n: number) => string | null, number | null]>([
    ["without trust a header is ignored", false, () => "192.0.2.1", null],
    ["without trust nobody hides behind a header", false, (n) => `192.0.2.${n}`, null],
    ["one address has one limit", true, () => "192.0.2.1", DEFAULT],
    ["each address has its own limit", true, (n) => `192.0.2.${n}`, null],
    ["this machine has a limit, too", true, () => null, DEFAULT],
    ["a caller that claims to be this machine has a limit", true, () => "127.0.0.1", DEFAULT],
    ["of one proxy only its own entry counts", 1, (n) => `203.0.113.${n}, 192.0.2.1`, DEFAULT],
    ["of two proxies the entry in front of the last counts", 2, (n) => `192.0.2.${n}, 198.51.100.1`, null],
    ["a proxy of the list is believed", ["127.0.0.0/8"], (n) => `192.0.2.${n}`, null],
    ["and nothing in front of it", ["loopback"], (n) => `203.0.113.${n}, 192.0.2.1`, DEFAULT],
    ["a proxy that is not in the list is not", ["10.0.0.0/8"], (n) => `192.0.2.${n}`, DEFAULT],
    ["names that are no addresses are one caller", true, (n) => `unknown-${n}`, DEFAULT],
  ])("%s", async (_, trustProxy, forwarded, tries) => {
    expect(await triesOf(trustProxy, forwarded)).toBe(tries);
  });

  it("no caller escapes a configured limit by a header of its own", async () => {
    expect(await triesOf(false, (n) => `192.0.2.${n}`, 3)).toBe(3);
    expect(await triesOf(1, (n) => `192.0.2.${n}, 192.0.2.1`, 3)).toBe(3);
  });
});
