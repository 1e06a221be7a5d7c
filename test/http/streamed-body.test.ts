import { createServer } from "node:http";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it, onTestFinished } from "vitest";
import { createBatch } from "../../src/client/batches.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { ImgbatchError } from "../../src/contract/errors.ts";
import type { StreamedBody } from "../../src/http/transport.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { listening } from "../support/listening.ts";

const MIB = 1024 * 1024;
const TEXT = JSON.stringify({ model: "m", items: [{ custom_id: "a", prompt: "é".repeat(500) }] });

async function wire(baseUrl?: string) {
  const fake = await startFakeService();
  onTestFinished(() => fake.close());
  const options = { baseUrl: baseUrl ?? fake.url, apiKey: FAKE_KEY, clock: new InstantClock() };
  return { fake, http: createServiceHttp({ ...options, random: Math.random }) };
}

const bytes = Buffer.from(TEXT);
const pieces: StreamedBody = {
  bytes: bytes.length,
  open: async function* () {
    for (let at = 0; at < bytes.length; at += 100) yield bytes.subarray(at, at + 100);
  },
};

it("a body in pieces arrives whole with its length, and again after what may pass", async () => {
  const { fake, http } = await wire();
  fake.fault(/^POST/, { reset: "before" }, { status: 503, headers: { "retry-after": "0" } });
  const { batch } = await createBatch(http, pieces, "k");
  expect(fake.batches.map(({ id }) => id)).toEqual([batch.id]);
  expect(fake.requests).toHaveLength(3);
  for (const { body, headers } of fake.requests) {
    expect(body).toBe(TEXT);
    expect(headers).toMatchObject({
      "content-length": String(bytes.length),
      "content-type": "application/json",
      "idempotency-key": "k",
    });
    expect(headers["transfer-encoding"]).toBeUndefined();
  }
});

it("what the body itself throws ends the request, and nothing was made", async () => {
  const { fake, http } = await wire();
  const changed = new ImgbatchError("SAVE_FAILED", "changed");
  const open = async function* () {
    yield bytes.subarray(0, 100);
    throw changed;
  };
  await expect(createBatch(http, { bytes: bytes.length, open }, "k")).rejects.toBe(changed);
  expect(fake.batches).toEqual([]);
});

it("an abort in the middle of a body ends it, and closes what it reads from", async () => {
  const { http } = await wire();
  const [stop, reason] = [new AbortController(), new Error("stop")];
  let isClosed = false;
  const open = async function* () {
    try {
      for (let i = 0; ; i++) {
        yield Buffer.alloc(1000);
        await new Promise(setImmediate);
        if (i === 3) stop.abort(reason);
      }
    } finally {
      isClosed = true;
    }
  };
  await expect(createBatch(http, { bytes: 1e9, open }, "k", { signal: stop.signal })).rejects.toBe(reason);
  await expect.poll(() => isClosed).toBe(true);
});

it("a redirect of a body in pieces is reported too", async () => {
  const { fake, http } = await wire();
  fake.fault(/^POST/, { status: 307, headers: { location: "https://new.example/" } });
  const refused = { code: "BAD_RESPONSE", message: expect.stringContaining("redirects") };
  await expect(createBatch(http, pieces, "k")).rejects.toMatchObject(refused);
});

it("nothing of a large body stays in memory when it was sent", async () => {
  const server = createServer((request, response) => {
    request.resume().on("end", () => response.end('{"id":"imgbatch_1","status":"queued"}'));
  });
  const { http } = await wire(await listening(server));
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const held = async () => {
    await new Promise(setImmediate);
    collect();
    return process.memoryUsage().arrayBuffers;
  };
  const before = await held();
  let after = Number.POSITIVE_INFINITY;
  const open = async function* () {
    for (let i = 0; i < 64; i++) yield Buffer.alloc(MIB, 32);
    // Sent bytes may be let go of a moment later.
    for (let look = 0; look < 50 && after - before >= 16 * MIB; look++) after = await held();
  };
  expect((await createBatch(http, { bytes: 64 * MIB, open }, "k")).batch.id).toBe("imgbatch_1");
  expect(after - before).toBeLessThan(16 * MIB);
});
