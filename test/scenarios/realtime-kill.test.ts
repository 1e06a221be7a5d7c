import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { FakeProvider, FakeUpstream, madeAfter } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { BIN, cleanEnvironment, imgbatch, startNode } from "../support/processes.ts";
import { answerOf, content, errorOf, generate, imagesOf } from "../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { model } from "../support/upstreams/chain.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { NATIVE_KEY, startNative } from "../support/upstreams/native.ts";

const KILLED_SERVICE = resolve(import.meta.dirname, "../support/killed-service.mjs");

/** Asks with an idempotency key until the service kills itself. */
async function killedDuring(data: string, moment: string, paid = ""): Promise<void> {
  const { line, exited } = startNode([KILLED_SERVICE, data, moment, paid]);
  const { url, key } = JSON.parse(await line());
  const headers = { "x-vendorx-api-key": key, "content-type": "application/json", ...KEYED };
  const path = `/v1beta/models/${MODEL}:generateContent`;
  const body = JSON.stringify(content("x"));
  await expect(fetch(url + path, { method: "POST", headers, body })).rejects.toThrow();
  expect((await exited).signal).toBe("SIGKILL");
}

const KEYED = { "idempotency-key": "k1", "x-imgbatch-max-cost": "1" };

it.each(["making:1", "answer:1"])(
  "[ONCE-6] a keyed drawing that a kill cut short (%s) is made again, and paid for once",
  async (moment) => {
    const data = await tempDir();
    await killedDuring(data, moment);
    const { stores, blobs } = await openBeside(data);
    const next = await startTestService({ data });
    const first = await generate(next, content("x"), { headers: KEYED });
    expect([first.status, first.headers.get("idempotency-replayed")]).toEqual([200, "false"]);
    const repeat = await generate(next, content("x"), { headers: KEYED });
    expect(await repeat.text()).toBe(await first.text());
    expect(await stores.read.accounts.byName("default")).toMatchObject({
      balanceMicroUsd: 1e9 - 67_000,
      heldMicroUsd: 0,
    });
    expect(await blobs.list("answers/")).toHaveLength(1);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  },
);

it("[ONCE-1] an answer that a kill lost, after it was paid for, is given to the repeat", async () => {
  const data = await tempDir();
  await killedDuring(data, "reply:1", "paid");
  const upstream = new FakeUpstream("procedural");
  const next = await startTestService({ data, providers: [upstream] });
  const repeat = await generate(next, content("x"), { headers: KEYED });
  expect([repeat.status, repeat.headers.get("idempotency-replayed")]).toEqual([200, "true"]);
  expect(imagesOf(await answerOf(repeat))).toHaveLength(1);
  expect(upstream.requests).toEqual([]);
  const { stores, blobs } = await openBeside(data);
  expect(await stores.read.usage.count()).toBe(1);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});

it("[ONCE-6] a keyed request that was sent to a paid upstream before a kill is sent once more at most, and counted as maybe paid twice", async () => {
  const data = await tempDir();
  await killedDuring(data, "making:1", "paid");
  await killedDuring(data, "answer:1", "paid");
  const upstream = new FakeUpstream("procedural");
  const config = { limits: { unknownOutcome: "once" } };
  const next = await startTestService({ data, providers: [upstream], config });
  for (const replayed of ["false", "true"]) {
    const refused = await generate(next, content("x"), { headers: KEYED });
    expect(refused.status).toBe(409);
    expect(refused.headers.get("idempotency-replayed")).toBe(replayed);
    expect(refused.headers.get("x-imgbatch-may-be-paid-twice")).toBe("true");
    expect((await errorOf(refused)).details).toEqual([
      expect.objectContaining({ reason: "REALTIME_OUTCOME_UNKNOWN" }),
    ]);
  }
  expect(upstream.requests).toEqual([]);
  const other = await generate(next, content("x"), { headers: { ...KEYED, "idempotency-key": "k2" } });
  expect(other.status).toBe(200);
  const { stores, blobs } = await openBeside(data);
  const calls = await stores.read.providerCalls.list({});
  expect(calls.reduce((sum, call) => sum + call.maybePaidTwice, 0)).toBe(1);
  // Two that were killed, and the one with the other key.
  expect(calls.reduce((sum, call) => sum + call.requests, 0)).toBe(3);
  expect(await stores.read.usage.count()).toBe(1);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});

it("[UNKNOWN-1] a keyed request that was sent to a paid upstream before a kill is not sent again, and counts as one request", async () => {
  const data = await tempDir();
  await killedDuring(data, "making:1", "paid");
  const upstream = new FakeUpstream("procedural");
  const next = await startTestService({ data, providers: [upstream] });
  for (const replayed of ["false", "true"]) {
    const refused = await generate(next, content("x"), { headers: KEYED });
    expect([refused.status, refused.headers.get("idempotency-replayed")]).toEqual([409, replayed]);
    expect(refused.headers.get("x-imgbatch-may-be-paid-twice")).toBeNull();
  }
  expect(upstream.requests).toEqual([]);
  const { stores, blobs } = await openBeside(data);
  expect(await stores.read.providerCalls.list({})).toMatchObject([{ requests: 1, maybePaidTwice: 0 }]);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});

it("a service that is killed while it makes an image gives the money back at its next start", async () => {
  const data = await tempDir();
  const { line, exited } = startNode([KILLED_SERVICE, data, "making:1"]);
  const { url, key } = JSON.parse(await line());
  const headers = { "x-vendorx-api-key": key, "content-type": "application/json" };
  const path = `/v1beta/models/${MODEL}:generateContent`;
  const body = JSON.stringify(content("x"));
  await expect(fetch(url + path, { method: "POST", headers, body })).rejects.toThrow();
  expect((await exited).signal).toBe("SIGKILL");

  const { stores, blobs } = await openBeside(data);
  expect(await stores.read.accounts.byName("default")).toMatchObject({ heldMicroUsd: 67_000 });
  const next = await startTestService({ data, workers: false });
  expect(await stores.read.accounts.byName("default")).toMatchObject({
    balanceMicroUsd: 1e9,
    heldMicroUsd: 0,
  });
  expect(imagesOf(await answerOf(await generate(next, content("x"))))).toHaveLength(1);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});

it("the same command after a kill gets the image that the killed one had asked for, and pays once", async () => {
  const end = gate();
  const provider = new FakeProvider();
  provider.answer = madeAfter(end);
  const service = await startTestService({ workers: false, providers: [provider] });
  const cwd = await tempDir();
  await writeFile(join(cwd, "p.jsonl"), '{"prompt":"a fox"}\n');
  const env = cleanEnvironment({
    IMGBATCH_BASE_URL: service.url,
    IMGBATCH_API_KEY: service.credentials.api_key,
    IMGBATCH_DATA: join(cwd, "data"),
  });
  const command = () => startNode([BIN, "generate", "--file", "p.jsonl", "-o", "out"], { cwd, env });
  const killed = command();
  await expect.poll(() => provider.running, { timeout: 20_000 }).toBe(1);
  killed.child.kill("SIGKILL");
  await killed.exited;
  const again = command();
  end.open();
  expect(await again.exited).toMatchObject({ code: 0 });
  expect(provider.requests).toHaveLength(1);
  const { stores, blobs } = await openBeside(service.data);
  expect(await stores.read.usage.count()).toBe(1);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
});

it("[GEN-17] an image that two killed runs have asked a paid upstream for is asked for again on demand alone, and marked", async () => {
  const fake = await startNative();
  onTestFinished(() => fake.close());
  fake.size = SMALL;
  const cwd = await tempDir();
  const provider = {
    ...{ name: "paid", type: "native", baseUrl: fake.url, models: { mine: "gemini-3-pro-image" } },
    ...{ apiKeyEnv: "PAID_KEY", keyHeader: "x-goog-api-key" },
  };
  const limits = { unknownOutcome: "once" };
  const config = { models: [model("mine")], providers: [provider], limits };
  await writeFile(join(cwd, "imgbatch.config.json"), JSON.stringify(config));
  await writeFile(join(cwd, "p.jsonl"), '{"prompt":"a cat"}\n{"prompt":"a fox"}\n');
  const env = cleanEnvironment({ HOME: cwd, IMGBATCH_DATA: join(cwd, "data"), PAID_KEY: NATIVE_KEY });
  await imgbatch(["doctor", "--agree"], { cwd, env });
  const start = (...args: string[]) => startNode([BIN, ...args, "--max-cost", "1"], { cwd, env });
  const generate = ["generate", "--file", "p.jsonl", "-o", "out"];
  const lines = async () => (await readFile(join(cwd, "out/results.jsonl"), "utf8")).trim().split("\n");
  const paidTwice = async () => {
    const { stdout } = await imgbatch(["admin", "usage", "--json"], { cwd, env });
    return (JSON.parse(stdout).usage as { may_be_paid_twice: number }[]).map((row) => row.may_be_paid_twice);
  };

  fake.setBehaviour(async (exchange) => {
    const made = await exchange.make();
    if (exchange.request.prompt === "a cat") exchange.send(made);
  });
  for (const asked of [1, 2]) {
    const { child, exited } = start(...generate);
    await expect.poll(() => fake.asked("a fox"), { timeout: 20_000 }).toBe(asked);
    await expect.poll(async () => (await lines())[0], { timeout: 20_000 }).toContain('"success"');
    child.kill("SIGKILL");
    await exited;
  }
  fake.setBehaviour(null);
  for (const _ of [3, 4]) {
    const { code, stderr } = await start(...generate).exited;
    expect(code).toBe(4);
    expect(stderr).toContain("1 image may be paid twice, see out/results.jsonl");
    expect(stderr).toContain(
      "to make the images of lost answers again, which is paid again:\nnext: imgbatch retry --include-lost out",
    );
  }
  expect([fake.asked("a fox"), fake.asked("a cat")]).toEqual([2, 1]);
  expect(await paidTwice()).toEqual([1]);

  // Without consent nothing is sent, and the image stays lost.
  const refused = await imgbatch(["retry", "out", "--include-lost"], { cwd, env });
  expect([refused.code, fake.asked("a fox")]).toEqual([8, 2]);
  expect((await start("retry", "out", "--include-lost").exited).code).toBe(0);
  expect([fake.asked("a fox"), fake.asked("a cat")]).toEqual([3, 1]);
  expect((await lines()).map((line) => JSON.parse(line))).toMatchObject([
    { status: "success", prompt: "a cat" },
    { status: "success", prompt: "a fox", notes: [expect.stringMatching(/^may be paid twice/)] },
  ]);
  expect((await imgbatch(["admin", "check"], { cwd, env })).code).toBe(0);
});
