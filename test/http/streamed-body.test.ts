import { expect, it, onTestFinished } from "vitest";
import { createBatch } from "../../src/client/batches.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { ImgbatchError } from "../../src/contract/errors.ts";
import type { StreamedBody } from "../../src/http/transport.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";

const TEXT = JSON.stringify({ model: "m", items: [{ custom_id: "a", prompt: "é".repeat(500) }] });

async function wire() {
  const fake = await startFakeService();
  onTestFinished(() => fake.close());
  const options = { baseUrl: fake.url, apiKey: FAKE_KEY, clock: new InstantClock() };
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
