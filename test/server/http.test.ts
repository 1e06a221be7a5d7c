import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import type { errorBody } from "../../src/contract/errors.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { exchange, requestText } from "../support/raw-http.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

const errorOf = async (answer: Response) => ((await answer.json()) as ReturnType<typeof errorBody>).error;

describe("every answer", () => {
  it("[API-1] carries a request id: the caller's when well formed, else a new one", async () => {
    const service = await startTestService({ workers: false });
    const ids = [];
    for (const given of ["job-7.a_B", "has space", "x".repeat(129)]) {
      ids.push(
        (await service.ask("/models", { headers: { "x-request-id": given } })).headers.get("x-request-id"),
      );
    }
    expect(ids).toEqual(["job-7.a_B", ...Array(2).fill(expect.stringMatching(/^req_[0-9a-f]{24}$/))]);
    expect((await fetch(`${service.url}/nowhere`)).headers.get("x-request-id")).toMatch(/^req_/);
  });

  it("[API-2] is JSON with type, code and message when something is wrong", async () => {
    const service = await startTestService({ workers: false });
    const answer = await service.ask("/imgbatch_unknown");
    expect(answer.status).toBe(404);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(await answer.json()).toEqual({
      error: { type: "not_found_error", code: "BATCH_IMAGE_NOT_FOUND", message: "No such batch." },
    });
  });

  it.each([
    ["GET", "/v1/images", 404, "NOT_FOUND", null],
    ["GET", "/v1/images/batches/", 404, "NOT_FOUND", null],
    ["GET", "/V1/images/batches/models", 404, "NOT_FOUND", null],
    ["GET", "/v1/images/batches/x/nothing", 404, "NOT_FOUND", null],
    ["GET", "/v1/images/batches/%zz", 404, "NOT_FOUND", null],
    ["PUT", "/v1/images/batches", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, POST"],
    ["POST", "/v1/images/batches/x", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, DELETE"],
  ])("[API-3] %s %s is %i", async (method, path, status, code, allow) => {
    const service = await startTestService({ workers: false });
    const authorization = `Bearer ${service.credentials.api_key}`;
    const answer = await fetch(service.url + path, { method, headers: { authorization } });
    expect([answer.status, (await errorOf(answer)).code]).toEqual([status, code]);
    expect(answer.headers.get("allow")).toBe(allow);
  });
});

describe("keys", () => {
  it.each([
    ["no key", {}, "API_KEY_REQUIRED"],
    ["an unknown key", { authorization: "Bearer imgb_unknown" }, "INVALID_API_KEY"],
    ["more than a key", { authorization: "Bearer imgb_a imgb_b" }, "INVALID_API_KEY"],
    ["another scheme", { authorization: "Basic abc" }, "INVALID_API_KEY"],
    ["a key in another header", { "x-api-key": "abc" }, "API_KEY_REQUIRED"],
  ])("[AUTH-1] refuse a request with %s", async (_, headers, code) => {
    const service = await startTestService({ workers: false });
    const answer = await fetch(`${service.url}/v1/images/batches/models`, {
      headers: headers as HeadersInit,
    });
    expect(answer.status).toBe(401);
    expect(await errorOf(answer)).toMatchObject({ type: "authentication_error", code });
  });

  it("[AUTH-5] that are wrong are limited by address and minute; a valid key always works", async () => {
    const clock = new FakeClock();
    const config = { limits: { failedAuthPerMinute: 3 } };
    const service = await startTestService({ workers: false, config, clock });
    const tryKey = async (authorization: string) => {
      const answer = await fetch(`${service.url}/v1/images/batches/models`, { headers: { authorization } });
      await answer.arrayBuffer();
      return [answer.status, answer.headers.get("retry-after")];
    };
    const wrong = () => tryKey("Bearer imgb_guess");
    for (let i = 0; i < 3; i++) expect(await wrong()).toEqual([401, null]);
    clock.advance(20_000);
    expect(await wrong()).toEqual([429, "40"]);
    expect(await tryKey(`Bearer ${service.credentials.api_key}`)).toEqual([200, null]);
    clock.advance(40_000);
    expect(await wrong()).toEqual([401, null]);
  });

  it("[AUTH-4] are refused in the URL, before anything else is looked at", async () => {
    const service = await startTestService({ workers: false });
    for (const path of ["/v1/images/batches", "/v1/models", "/healthz", "/nowhere"]) {
      const answer = await fetch(`${service.url}${path}?api_key=imgb_secret`);
      const error = await errorOf(answer);
      expect([answer.status, error.param]).toEqual([400, "api_key"]);
      expect(error.message).not.toContain("secret");
    }
  });

  it.each([
    ["encoded", "/healthz?%61pi%5Fkey=hidden"],
    ["as a list", "/healthz?api_key[]=hidden"],
    ["as an encoded field", "/healthz?credentials%5Bapi_key%5D=hidden"],
    ["behind a second question mark", "/healthz?a=1?api_key=hidden"],
    ["behind a fragment", "/healthz#a?api_key=hidden"],
    ["without a question mark", "/healthz&api_key=hidden"],
    ["behind very many others", `/healthz?${"a&".repeat(2000)}api_key=hidden`],
    ["where the path does not decode", "/v1/images/batches/%zz?api_key[0]=hidden"],
    ["with a method that is not taken", "/v1/images/batches/x/cancel?api_key[0]=hidden"],
    ["in an absolute target", "http://localhost/healthz?api_key=hidden"],
    ["with a host that is not known", "http://evil.example/healthz?api_key=hidden"],
  ])("[AUTH-4] are refused in the URL, and not logged: %s", async (_, target) => {
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, logLines });
    const answer = await exchange(service.url, requestText("GET", target));
    const { error } = JSON.parse(String(answer?.body)) as ReturnType<typeof errorBody>;
    expect([answer?.status, error.code, error.param]).toEqual([400, "BATCH_IMAGE_INVALID_QUERY", "api_key"]);
    await expect.poll(() => logLines.join("")).toContain(answer?.headers.get("x-request-id"));
    expect(answer?.text + logLines.join("")).not.toContain("hidden");
  });

  it("[AUTH-4] are not seen in what only looks like one", async () => {
    const service = await startTestService({ workers: false });
    for (const query of ["my_api_key=1", "api_keys=1", "x-api_key=1", "a=api_key", "q=api_key%3D1"]) {
      expect([query, (await fetch(`${service.url}/healthz?${query}`)).status]).toEqual([query, 200]);
    }
  });

  it("in the query are neither logged nor shown, also those of other services and in any spelling", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ workers: false, logLines });
    const shown: string[] = [];
    service.feed.subscribe((event) => {
      if (event.type === "request") shown.push(event.line.path);
    });
    const targets = [
      "/v1beta/models?key=hidden",
      "/v1beta/models?k%65y=hidden",
      "/v1beta/models?key[]=hidden",
      "/v1beta/models?alt=a?key=hidden",
      "/v1beta/models#key=hidden",
      "/v1beta/models%3Fkey=hidden",
      "/v1beta/models%3fkey%3dhidden",
      "/v1beta/models;key=hidden",
      "/v1beta/models&key=hidden",
      "http://key:hidden@localhost/v1beta/models",
      "http://localhost/v1beta/models?key=hidden",
      "ftp://localhost/v1beta/models?key=hidden",
    ];
    for (const target of targets) {
      const answer = await exchange(service.url, requestText("GET", target));
      expect([target, answer?.status]).toEqual([
        target,
        target.includes("@") || target.startsWith("ftp") ? 400 : 401,
      ]);
      expect(answer?.text).not.toContain("hidden");
    }
    await expect.poll(() => shown).toHaveLength(targets.length);
    expect(logLines.length).toBeGreaterThanOrEqual(targets.length);
    expect(shown.join(" ") + logLines.join("")).not.toContain("hidden");
    expect(shown).toContain("/v1beta/models%3Fkey=…");
    expect(await (await fetch(`${service.url}/metrics`)).text()).not.toMatch(/hidden|key=/);
  });

  it("[AUTH-1] in two headers are refused, whichever of them is right", async () => {
    const service = await startTestService({ workers: false });
    const right = `Bearer ${service.credentials.api_key}`;
    for (const path of ["/v1/images/batches", "/v1beta/models", "/v1/models"]) {
      for (const both of [
        [right, right],
        [right, "Bearer wrong"],
        ["Bearer wrong", right],
        ["", right],
      ]) {
        const headers = both.map((value) => ["Authorization", value] as const);
        expect((await exchange(service.url, requestText("GET", path, headers)))?.status).toBe(401);
      }
    }
    const many = Array.from({ length: 2100 }, () => ["a", ""] as const);
    const last = [...many, ["Authorization", right] as const];
    expect((await exchange(service.url, requestText("GET", "/v1/models", last)))?.status).toBe(200);
  });

  it("are asked for before the body is read", async () => {
    const service = await startTestService({ workers: false });
    const answer = await fetch(`${service.url}/v1/images/batches`, { method: "POST", body: "{broken" });
    expect((await errorOf(answer)).code).toBe("API_KEY_REQUIRED");
  });
});

describe("bodies", () => {
  it.each([
    ["broken JSON", "{", {}, 400, "INVALID_JSON"],
    ["invalid UTF-8", Buffer.from([0x22, 0xff, 0x22]), {}, 400, "INVALID_JSON"],
    [
      "another type",
      "a=b",
      { "content-type": "application/x-www-form-urlencoded" },
      415,
      "UNSUPPORTED_MEDIA_TYPE",
    ],
    ["a list of a million", `[${"0,".repeat(1e6)}0]`, {}, 400, "INVALID_JSON"],
    [
      "items without end",
      `{"model":"${MODEL}","items":[${"0,".repeat(150_000)}0]}`,
      {},
      400,
      "BATCH_IMAGE_INVALID_ITEMS",
    ],
    ["nothing", undefined, {}, 400, "INVALID_JSON"],
    ["a list", "[]", {}, 400, "BATCH_IMAGE_INVALID_MODEL"],
    ["null", "null", {}, 400, "BATCH_IMAGE_INVALID_MODEL"],
  ])("%s is refused", async (_, body, headers, status, code) => {
    const service = await startTestService({ workers: false });
    const init = { method: "POST", body, headers: { "content-type": "application/json", ...headers } };
    const answer = await service.ask("", init as RequestInit);
    expect([answer.status, (await errorOf(answer)).code]).toEqual([status, code]);
  });

  it("[API-5] a body above the limit is answered with 413, announced or not", async () => {
    const service = await startTestService({ workers: false, config: { limits: { createBodyBytes: 1000 } } });
    const body = JSON.stringify({ model: MODEL, items: items(50) });
    const announced = await service.create(JSON.parse(body));
    expect([announced.status, (await errorOf(announced)).code]).toEqual([413, "REQUEST_TOO_LARGE"]);
    const stream = new Blob([body]).stream();
    const init = { method: "POST", body: stream, duplex: "half" } as RequestInit;
    const chunked = await service.ask("", init);
    expect(chunked.status).toBe(413);
  });

  it("[API-5] a client that sends everything before it reads gets to see the refusal", async () => {
    const limits = { createBodyBytes: 1024 * 1024 };
    const service = await startTestService({ workers: false, config: { limits } });
    const key = service.credentials.api_key;
    for (const authorization of [`Bearer ${key}`, "Bearer wrong"]) {
      for (const framing of ["announced", "chunked"] as const) {
        const answer = await sendThenRead(service.url, authorization, framing, 24);
        expect(answer).toMatch(authorization.endsWith("wrong") ? /^HTTP\/1\.1 401 / : /^HTTP\/1\.1 413 /);
      }
    }
  });

  it("a client that waits for permission gets it only when the request may go on", async () => {
    const service = await startTestService({ workers: false });
    const refused = await rawExchange(service.url, ["Expect: 100-continue", "Content-Length: 100"]);
    expect(refused).toMatch(/^HTTP\/1\.1 401 /);
    const allowed = await rawExchange(service.url, [
      `Authorization: Bearer ${service.credentials.api_key}`,
      "Expect: 100-continue",
      "Content-Length: 100",
    ]);
    expect(allowed).toMatch(/^HTTP\/1\.1 100 /);
  });
});

/** The first bytes that come back for a request whose body is not sent. */
function rawExchange(url: string, headers: string[]): Promise<string> {
  const { port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), "127.0.0.1", () => {
      socket.write(["POST /v1/images/batches HTTP/1.1", "Host: localhost", ...headers, "", ""].join("\r\n"));
    });
    socket.once("data", (data) => {
      socket.destroy();
      resolve(String(data));
    });
    socket.once("error", reject);
  });
}

/** Sends a body of this many MiB to its end, and only then reads the answer. */
function sendThenRead(
  url: string,
  authorization: string,
  framing: "announced" | "chunked",
  mib: number,
): Promise<string> {
  const piece = Buffer.alloc(1024 * 1024, 32);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.once("error", reject);
    socket.pause();
    const length =
      framing === "announced" ? `Content-Length: ${mib * piece.length}` : "Transfer-Encoding: chunked";
    const head = [
      "POST /v1/images/batches HTTP/1.1",
      "Host: localhost",
      `Authorization: ${authorization}`,
      length,
      "",
      "",
    ];
    socket.write(head.join("\r\n"));
    for (let i = 0; i < mib; i++) {
      if (framing === "chunked") socket.write("100000\r\n");
      socket.write(piece);
      if (framing === "chunked") socket.write("\r\n");
    }
    socket.write(framing === "chunked" ? "0\r\n\r\n" : "", () => {
      socket.once("data", (data) => {
        socket.destroy();
        resolve(String(data));
      });
      socket.resume();
    });
  });
}

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
