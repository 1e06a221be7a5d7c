import { readFileSync } from "node:fs";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { join } from "node:path";
import { expect, it } from "vitest";
import { ImgbatchError } from "../../src/contract/errors.ts";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { hashFile } from "../../src/runs/directory/run-files.ts";
import { EMBEDDED } from "../../src/runs/directory/run-service.ts";
import type { RunBatch } from "../../src/runs/directory/run-state-schema.ts";
import { planRetry } from "../../src/runs/plan/retry.ts";
import { send } from "../../src/runs/send.ts";
import { png } from "../support/fake-service.ts";
import { createRunHarness } from "../support/run-harness.ts";

it("after a refusal of the first batch no other leaves", async () => {
  const harness = await createRunHarness();
  const lines = Array.from({ length: 6 }, (_, i) => ({ custom_id: `c${i}`, prompt: `cat ${i}` }));
  harness.fake.fault(/^POST/, { status: 402, body: { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE" } } });
  await expect(harness.submit(lines, { limits: { itemsPerBatch: 1 } })).rejects.toMatchObject({
    httpStatus: 402,
  });
  expect(harness.fake.count(/^POST/)).toBe(1);
});

it("the run state names every batch that was made, each in its place, also after a failure", async () => {
  const harness = await createRunHarness();
  const lines = Array.from({ length: 12 }, (_, i) => ({ custom_id: `c${i}`, prompt: `cat ${i}` }));
  const limits = { itemsPerBatch: 1 };
  harness.fake.fault(/^POST/, ...Array.from({ length: 5 }, () => ({ lie: <T>(answer: T) => answer })), {
    status: 402,
    body: { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", message: "no" } },
  });
  await expect(harness.submit(lines, { limits })).rejects.toMatchObject({
    code: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
  });
  const half = (await harness.runState()).batches.filter(({ state }) => state === "created");
  expect(half.map(({ id }) => id).sort()).toEqual(harness.fake.batches.map(({ id }) => id).sort());
  const outcome = await harness.submit(lines, { limits });
  expect(outcome.lines.map((line) => line.custom_id)).toEqual(lines.map((line) => line.custom_id));
  expect(harness.fake.batches).toHaveLength(12);
  const runState = await harness.runState();
  for (const [index, { id, state }] of runState.batches.entries()) {
    const made = harness.fake.batches.find((batch) => batch.id === id);
    expect([state, made?.items[0]?.custom_id]).toEqual(["created", `c${index}`]);
  }
});

const ONE = [{ custom_id: "cat", prompt: "a cat" }];
const MENDED = [{ custom_id: "cat", prompt: "a better cat" }];

const refusal = (status: number, code: string, message: string, param?: string) => ({
  status,
  body: { error: { code, message, param } },
});
const badItems = refusal(400, "BATCH_IMAGE_INVALID_ITEMS", "no");

it("a run whose first batch was refused outright leaves nothing, so that a mended input takes the directory", async () => {
  const harness = await createRunHarness();
  await writeFile(join(harness.root, "r.png"), png("r"));
  await mkdir(harness.dir);
  await writeFile(harness.path("notes.txt"), "mine");
  for (const answer of [badItems, refusal(422, "unprocessable", "no"), refusal(403, "forbidden", "no")]) {
    harness.fake.fault(/^POST/, answer);
    const lines = [{ ...ONE[0], reference_images: ["r.png"] }];
    await expect(harness.submit(lines)).rejects.toMatchObject({ httpStatus: answer.status });
    expect(await readdir(harness.dir)).toEqual(["notes.txt"]);
  }
  expect(await harness.submit(MENDED)).toMatchObject({ fetchedCount: 1 });
});

it.each([
  ["a conflict of the key", refusal(409, "BATCH_IMAGE_IDEMPOTENCY_CONFLICT", "used")],
  ["a fault of the service", refusal(500, "INTERNAL_ERROR", "oh")],
])("%s leaves the intent", async (_name, answer) => {
  const harness = await createRunHarness();
  harness.fake.fault(/^POST/, answer);
  await expect(harness.submit(ONE)).rejects.toMatchObject({ httpStatus: answer.status });
  expect((await harness.runState()).batches[0]?.state).not.toBe("created");
  await expect(harness.submit(MENDED)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
});

it("an intent of an earlier call stays, and so does a run of which a batch was made", async () => {
  const harness = await createRunHarness();
  harness.fake.fault(/^POST/, refusal(500, "INTERNAL_ERROR", "oh"), badItems);
  await expect(harness.submit(ONE)).rejects.toMatchObject({ httpStatus: 500 });
  await expect(harness.submit(ONE)).rejects.toMatchObject({ httpStatus: 400 });
  expect(await readdir(harness.dir)).toContain("imgbatch.json");

  const other = await createRunHarness();
  const lines = [...ONE, { custom_id: "dog", prompt: "a dog" }];
  other.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, badItems);
  await expect(other.submit(lines, { limits: { itemsPerBatch: 1 } })).rejects.toMatchObject({
    httpStatus: 400,
  });
  expect((await other.runState()).batches.map(({ state }) => state)).toEqual(["created", "intent"]);
});

it("the error for an item that the service blames names the line of the prompt file, in its batch, with the image's path", async () => {
  const harness = await createRunHarness();
  await writeFile(join(harness.root, "r.png"), png("r"));
  const lines = [
    "// two batches",
    ...ONE,
    { custom_id: "dog", prompt: "a dog" },
    { custom_id: "bat", prompt: "a bat", reference_images: ["r.png"] },
  ];
  const field = "items[0].reference_images[0].data";
  const text = `${field}: the image is damaged`;
  harness.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, { lie: <T>(answer: T) => answer });
  harness.fake.fault(/^POST/, refusal(400, "BATCH_IMAGE_INVALID_REFERENCE_IMAGE", text, field));
  await expect(harness.submit(lines, { limits: { itemsPerBatch: 1 } })).rejects.toMatchObject({
    code: "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
    message: text,
    param: field,
    details: [
      `prompts.jsonl:4: reference_images[0].data: ${join(harness.root, "r.png")}: the image is damaged`,
    ],
  });
});

it("an unknown item in the service's error is reported as the service names it", async () => {
  const harness = await createRunHarness();
  harness.fake.fault(/^POST/, refusal(400, "BATCH_IMAGE_INVALID_ITEMS", "items[7].prompt: no"));
  await expect(harness.submit(ONE)).rejects.toMatchObject({
    message: "items[7].prompt: no",
    details: undefined,
  });
});

const image = (tail: number) => Buffer.concat([png("x"), Buffer.alloc(tail, tail)]);

it("a stored image that changes, shrinks or goes while it is sent is exit 9 and makes nothing", async () => {
  for (const change of [image(100_001).subarray(1), Buffer.alloc(0), null]) {
    const harness = await createRunHarness();
    await writeFile(`${harness.root}/photo.png`, image(100_000));
    const lines = [
      { custom_id: "a", prompt: "first", reference_images: ["photo.png"] },
      { custom_id: "b", prompt: "second", reference_images: ["photo.png"] },
    ];
    const path = harness.path(`references/${await hashFile(`${harness.root}/photo.png`)}`);
    harness.fake.fault(/^POST/, {
      handle: (_, response) => {
        const wreck = change === null ? rm(path) : writeFile(path, change);
        void wreck.then(() => response.writeHead(503, { "retry-after": "0" }).end());
      },
    });
    await expect(harness.submit(lines)).rejects.toMatchObject({ code: "SAVE_FAILED" });
    expect(harness.fake.batches).toEqual([]);
  }
});

const PAIR = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog" },
];
const EDITED = [
  { custom_id: "cat", prompt: "a big cat" },
  { custom_id: "dog", prompt: "a big dog" },
];

it("[RUN-8] a batch whose prompts were changed on disk since is not sent under its old key", async () => {
  const harness = await createRunHarness();
  for (let i = 0; i < 4; i++) harness.fake.fault(/^POST/, { reset: "after" });
  await expect(harness.submit(PAIR)).rejects.toMatchObject({ code: "SUBMISSION_UNKNOWN" });
  const text = await harness.read("input.jsonl");
  await writeFile(harness.path("input.jsonl"), text.replace("a cat", "a tiger"));
  const before = harness.fake.count(/^POST/);
  await expect(harness.submit(EDITED, { isUpdate: true })).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
    message: expect.stringContaining("input.jsonl:1 is not a line that a run has written"),
  });
  expect(harness.fake.count(/^POST/)).toBe(before);
});

it("[RUN-8] the key of every request is on disk before it leaves: of a submission, a retry and an update", async () => {
  const harness = await createRunHarness({ failing: /dog/ });
  const { dir, service, clock } = harness;
  /** For each request, the keys that a kill at that moment would leave. */
  const left: [sent: unknown, onDisk: unknown[]][] = [];
  const look = {
    handle: (({ headers }, response) => {
      const { batches } = JSON.parse(readFileSync(harness.path("imgbatch.json"), "utf8"));
      left.push([headers["idempotency-key"], batches.map((entry: RunBatch) => entry.idempotency_key)]);
      response.destroy();
    }) satisfies RequestListener,
  };
  const looked = async <T>(work: () => Promise<T>) => {
    const before = left.length;
    harness.fake.fault(/^POST/, look, look, look, look);
    await expect(work()).rejects.toMatchObject({ code: "SUBMISSION_UNKNOWN" });
    const [sent, onDisk] = left[before] ?? [];
    expect(onDisk).toContain(sent);
    return harness.fake.batches.length;
  };
  expect(await looked(() => harness.submit(PAIR))).toBe(0);
  const { lines } = await harness.submit(PAIR);
  const run = { dir, service, clock, limits: DEFAULT_LIMITS, state: await harness.runState() };
  const { added } = await planRetry(run, lines, { refused: false, lost: false });
  const reporter = { note() {}, detail() {}, progress() {} };
  expect(await looked(() => send({ ...run, reporter }, { added }))).toBe(1);
  await send({ ...run, state: await harness.runState(), reporter });
  expect(await looked(() => harness.submit(EDITED, { isUpdate: true }))).toBe(2);
});

it("a stopped batch of a run does not go on in a command whose further batch is refused for want of money", async () => {
  const harness = await createRunHarness({ statuses: ["in_progress"] });
  const named: string[] = [];
  const goOn = async (id: string) => void named.push(id);
  Object.assign(harness.service, { identity: EMBEDDED, goOn });
  const options = { limits: { itemsPerBatch: 1 }, onlyStart: true };
  const noMoney = refusal(402, "BATCH_IMAGE_INSUFFICIENT_BALANCE", "No.");
  harness.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, noMoney, noMoney);
  await expect(harness.submit(PAIR, options)).rejects.toMatchObject({ httpStatus: 402 });
  expect(harness.fake.batches).toHaveLength(1);
  named.length = 0;
  await expect(harness.submit(PAIR, options)).rejects.toMatchObject({ httpStatus: 402 });
  expect(named).toEqual([]);
  await harness.submit(PAIR, options);
  expect(named.sort()).toEqual(harness.fake.batches.map(({ id }) => id).sort());
  expect(named).toHaveLength(2);
});

it("after a refused update of several batches, another update pays only for its own prompts", async () => {
  const harness = await createRunHarness();
  const limits = { itemsPerBatch: 1 };
  await harness.submit(PAIR, { limits });
  harness.fake.fault(/^POST/, refusal(402, "BATCH_IMAGE_INSUFFICIENT_BALANCE", "No."));
  await expect(harness.submit(EDITED, { limits, isUpdate: true })).rejects.toMatchObject({ httpStatus: 402 });
  expect((await harness.runState()).batches.map(({ refused }) => refused)).toEqual([
    undefined,
    undefined,
    true,
    true,
  ]);
  const huge = EDITED.map((line) => ({ ...line, prompt: line.prompt.replace("big", "huge") }));
  await harness.submit(huge, { limits, isUpdate: true });
  expect(harness.fake.batches.map(({ items }) => items[0]?.prompt)).toEqual([
    ...PAIR.map(({ prompt }) => prompt),
    ...huge.map(({ prompt }) => prompt),
  ]);
});

it("the retry of a run that an upstream makes is another request than that of the same run with drawings", async () => {
  const harness = await createRunHarness({ failing: /cat/ });
  const { lines } = await harness.submit(PAIR);
  const { dir, service, clock } = harness;
  const state = await harness.runState();
  const keyOf = async (images: object) => {
    const run = { dir, service, clock, limits: DEFAULT_LIMITS };
    const request = state.request && { ...state.request, ...images };
    const plan = await planRetry({ ...run, state: { ...state, request } }, lines, {
      refused: false,
      lost: false,
    });
    return plan.added.map((entry) => entry.idempotency_key);
  };
  const [drawn, real] = [await keyOf({}), await keyOf({ images: "real" })];
  expect(drawn).toHaveLength(1);
  expect(real).not.toEqual(drawn);
});

it("[RETRY-1] of a refused retry only the refused batches are planned anew: one that may have been made stays", async () => {
  const harness = await createRunHarness({ failing: /cat/ });
  const lines = Array.from({ length: 3 }, (_, i) => ({ custom_id: `c${i}`, prompt: `cat ${i}` }));
  const { lines: failed } = await harness.submit(lines, { limits: { itemsPerBatch: 1 } });
  const { dir, service, clock } = harness;
  const run = { dir, service, clock, limits: DEFAULT_LIMITS, state: await harness.runState() };
  const { added } = await planRetry(run, failed, { refused: false, lost: false });
  const lost = { reset: "after" } as const;
  const broke = refusal(402, "BATCH_IMAGE_INSUFFICIENT_BALANCE", "No.");
  harness.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, lost, broke, lost, lost, lost);
  const reporter = { note() {}, detail() {}, progress() {} };
  await expect(send({ ...run, reporter }, { added })).rejects.toBeInstanceOf(ImgbatchError);
  const state = await harness.runState();
  expect(state.batches.slice(3).map((entry) => [entry.images, entry.state])).toEqual([
    [["c0"], "created"],
    [["c1"], "unknown"],
  ]);
  await send({ ...run, state, reporter });
  expect(harness.fake.batches.map(({ items }) => items[0]?.custom_id)).toEqual([
    "c0",
    "c1",
    "c2",
    "c0",
    "c1",
  ]);
  expect(state.batches.slice(3).map((entry) => entry.state)).toEqual(["created", "created"]);
});

it("[UPDATE-6] a look with another key at an update that was cut off leaves its open batch to the first one", async () => {
  const harness = await createRunHarness();
  const limits = { itemsPerBatch: 1 };
  await harness.submit(PAIR, { limits });
  const lost = { reset: "after" } as const;
  harness.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, lost, lost, lost, lost);
  await expect(harness.submit(EDITED, { limits, isUpdate: true })).rejects.toMatchObject({
    code: "SUBMISSION_UNKNOWN",
  });
  const own = harness.service.keyFingerprint;
  harness.service.keyFingerprint = "0123456789ab";
  await harness.submit(EDITED, { limits });
  harness.service.keyFingerprint = own;
  const { lines } = await harness.submit(EDITED, { limits });
  expect(lines.map(({ custom_id: id, files }) => [id, files.length])).toEqual([
    ["cat", 1],
    ["dog", 1],
  ]);
  expect(harness.fake.batches).toHaveLength(4);
});
