import { describe, expect, it } from "vitest";
import { FakeClock } from "../../support/fake-clock.ts";
import {
  items,
  MODEL,
  openBeside,
  otherKey,
  startTestService,
  type TestService,
} from "../../support/service.ts";

const MINUTE_MS = 60_000;

async function call(service: TestService, method: string, path: string, credential?: string) {
  const headers = credential === undefined ? {} : { authorization: `Bearer ${credential}` };
  const answer = await fetch(`${service.url}/v1/${path}`, { method, headers });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: text === "" ? null : JSON.parse(text) };
}

const codeOf = async (service: TestService): Promise<string> =>
  new URL((await service.signInLink?.()) ?? "").hash.slice("#code=".length);

async function signedIn(service: TestService): Promise<string> {
  const { body } = await call(service, "POST", "console/sessions", await codeOf(service));
  return body.token;
}

describe("signing in to the console", () => {
  it("[CONSOLE-1] a code buys a session once, whose token works wherever the key does", async () => {
    const service = await startTestService({ clock: new FakeClock() });
    const link = (await service.signInLink?.()) ?? "";
    expect(link).toMatch(new RegExp(`^${service.url}/#code=[\\w-]{43}$`));
    const code = link.slice(link.indexOf("=") + 1);
    const { status, body, headers } = await call(service, "POST", "console/sessions", code);
    const expires_at = Date.UTC(2030, 0, 2, 15, 4, 5) / 1000;
    expect([status, body]).toEqual([
      200,
      { object: "console.session", token: expect.any(String), expires_at },
    ]);
    expect(headers.get("cache-control")).toBe("no-store");
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(id);
    for (const path of [`images/batches/${id}`, "account", "models"]) {
      expect((await call(service, "GET", path, body.token)).status).toBe(200);
    }
    const native = { headers: { "x-vendorx-api-key": body.token } };
    expect((await fetch(`${service.url}/v1beta/models`, native)).status).toBe(200);
    const again = await call(service, "POST", "console/sessions", code);
    expect([again.status, again.body.error.code]).toEqual([401, "INVALID_API_KEY"]);
  });

  it("[CONSOLE-1] a code is good for 10 minutes, and a session for 12 hours", async () => {
    const clock = new FakeClock();
    const service = await startTestService({ workers: false, clock });
    const [late, inTime] = [await codeOf(service), await codeOf(service)];
    clock.advance(10 * MINUTE_MS - 1);
    const { body } = await call(service, "POST", "console/sessions", inTime);
    clock.advance(1);
    expect((await call(service, "POST", "console/sessions", late)).status).toBe(401);
    clock.advance(12 * 60 * MINUTE_MS - 2);
    expect((await call(service, "GET", "account", body.token)).status).toBe(200);
    clock.advance(1);
    const over = await call(service, "GET", "account", body.token);
    expect([over.status, over.body.error.code]).toEqual([401, "INVALID_API_KEY"]);
  });

  it("[CONSOLE-1] a key buys a session and codes; a session buys neither", async () => {
    const service = await startTestService({ workers: false });
    const other = await otherKey(service);
    const { body: session } = await call(service, "POST", "console/sessions", other.key);
    const { body: account } = await call(service, "GET", "account", session.token);
    expect(account).toMatchObject({ key: { name: "other" }, owner: false });
    const { body: code } = await call(service, "POST", "console/codes", other.key);
    expect(code).toMatchObject({ object: "console.code", code: expect.stringMatching(/^[\w-]{43}$/) });
    const { body: second } = await call(service, "POST", "console/sessions", code.code);
    expect((await call(service, "GET", "account", second.token)).body.key.name).toBe("other");
    for (const path of ["console/codes", "console/sessions"]) {
      const refused = await call(service, "POST", path, session.token);
      expect([refused.status, refused.body.error.code]).toEqual([401, "INVALID_API_KEY"]);
    }
  });

  it("signing out ends the session, and disabling the key ends all of its sessions for good", async () => {
    const service = await startTestService({ workers: false });
    const [first, second] = [await signedIn(service), await signedIn(service)];
    expect((await call(service, "DELETE", "console/session", first)).status).toBe(204);
    expect((await call(service, "GET", "account", first)).body.error.code).toBe("INVALID_API_KEY");
    const { stores } = await openBeside(service.data);
    const [key] = await stores.read.keys.list();
    const code = await codeOf(service);
    await stores.write((tx) => tx.keys.setDisabled(key?.id ?? "", 1));
    expect((await call(service, "GET", "account", second)).body.error.code).toBe("API_KEY_DISABLED");
    expect((await call(service, "POST", "console/sessions", code)).body.error.code).toBe("API_KEY_DISABLED");
    await stores.write((tx) => tx.keys.setEnabled(key?.id ?? "", 2));
    expect((await call(service, "GET", "account", second)).status).toBe(401);
  });

  it("a session ends with its key although nobody asks before that is enabled again", async () => {
    const clock = new FakeClock();
    const service = await startTestService({ workers: false, clock });
    const before = await signedIn(service);
    const { stores } = await openBeside(service.data);
    const [key] = await stores.read.keys.list();
    clock.advance(1000);
    await stores.write((tx) => tx.keys.setDisabled(key?.id ?? "", clock.nowMs()));
    clock.advance(1000);
    await stores.write((tx) => tx.keys.setEnabled(key?.id ?? "", clock.nowMs()));
    expect((await call(service, "GET", "account", before)).body.error.code).toBe("INVALID_API_KEY");
    clock.advance(1);
    expect((await call(service, "GET", "account", await signedIn(service))).status).toBe(200);
  });

  it("wrong codes are limited like wrong keys, and a right one works all the same", async () => {
    const config = { limits: { failedAuthPerMinute: 2 } };
    const service = await startTestService({ workers: false, config, clock: new FakeClock() });
    const wrong = async () => (await call(service, "POST", "console/sessions", "guess")).status;
    expect([await wrong(), await wrong(), await wrong()]).toEqual([401, 401, 429]);
    expect((await call(service, "POST", "console/sessions", await codeOf(service))).status).toBe(200);
  });

  it("codes and tokens are not in the log, not even when a request fails", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, logLines });
    const code = await codeOf(service);
    const token = await signedIn(service);
    await call(service, "GET", `${token}?x=${token}`, token);
    await call(service, "GET", `images/batches/${token}`, token);
    await fetch(`${service.url}/v1/account`, { headers: { "x-request-id": token } });
    await call(service, "POST", "console/sessions", code);
    await expect.poll(() => logLines.join("")).toContain("console/sessions");
    expect(logLines.join("")).not.toContain(token);
    expect(logLines.join("")).not.toContain(code);
  });

  it("another site cannot sign in or read: there is no CORS", async () => {
    const service = await startTestService({ workers: false });
    const origin = "https://evil.example";
    for (const [method, path] of [
      ["OPTIONS", "console/sessions"],
      ["POST", "console/sessions"],
      ["GET", "account"],
    ] as const) {
      const answer = await fetch(`${service.url}/v1/${path}`, { method, headers: { origin } });
      expect([...answer.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
      expect(answer.ok).toBe(false);
    }
  });

  it("is not there when it is switched off", async () => {
    const config = { features: { console: false } };
    const service = await startTestService({ workers: false, config });
    expect(service.signInLink).toBeNull();
    const key = service.credentials.api_key;
    for (const [method, path] of [
      ["POST", "console/sessions"],
      ["POST", "console/codes"],
      ["DELETE", "console/session"],
    ] as const) {
      expect((await call(service, method, path, key)).body.error.code).toBe("NOT_FOUND");
    }
    const page = await fetch(service.url);
    expect([page.status, (await page.json()).error.code]).toEqual([404, "NOT_FOUND"]);
  });
});
