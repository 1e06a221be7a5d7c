import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { keyFingerprint } from "../../../src/runs/directory/run-service.ts";
import { FAKE_KEY } from "../../support/fake-service.ts";
import { createBench } from "../../support/run-harness.ts";

const TWO = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog", output_count: 2 },
];

it("[RUN-1] a run leaves the run state, the exact input, the results in input order, and every image", async () => {
  const bench = await createBench();
  const outcome = await bench.submit(TWO);
  expect(outcome.lines.map((line) => line.custom_id)).toEqual(["cat", "dog_01", "dog_02"]);
  expect((await readdir(bench.dir)).sort()).toEqual([
    "images",
    "imgbatch.json",
    "input.jsonl",
    "results.jsonl",
  ]);
  expect((await readdir(bench.path("images"))).sort()).toEqual(["cat.png", "dog_01.png", "dog_02.png"]);
  const [cat] = await bench.results();
  expect(cat).toMatchObject({ custom_id: "cat", status: "success", verified: "sha256" });
  expect(cat?.files[0]).toMatchObject({
    path: "images/cat.png",
    mime_type: "image/png",
    width: 4,
    height: 3,
  });
  const source = (id: string, line: number) => ({ id, file: "prompts.jsonl", line });
  const input = TWO.map((item, i) => ({ ...item, source: source(item.custom_id, i + 1) }));
  expect(await bench.read("input.jsonl")).toBe(`${input.map((item) => JSON.stringify(item)).join("\n")}\n`);
  const runState = await bench.runState();
  expect(runState.batches[0]).toMatchObject({ state: "created", status: "completed", item_count: 3 });
});

it("[RUN-2] the same run again finds the same batch and downloads nothing", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  const again = await bench.submit(TWO);
  expect(again).toMatchObject({ replayed: true, fetchedCount: 0 });
  expect(bench.fake.count(/^POST/)).toBe(1);
  expect(bench.fake.count(/download/)).toBe(1);
  expect(bench.notes.at(-1)).toMatch(/^re-using imgbatch_\w+ submitted 2 h ago \(--new to generate again\)$/);
});

it("the same content in a new directory is a replay, not a second batch", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  await rm(bench.dir, { recursive: true });
  const again = await bench.submit(TWO);
  expect(again).toMatchObject({ replayed: true, fetchedCount: 3 });
  expect(bench.fake.batches).toHaveLength(1);
});

it("[RUN-4] a flipped byte and a missing file are repaired one by one, and nothing else is touched", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  const whole = await readFile(bench.path("images/cat.png"));
  const flipped = Buffer.from(whole);
  flipped[40] = (flipped[40] ?? 0) ^ 1;
  await writeFile(bench.path("images/cat.png"), flipped);
  await rm(bench.path("images/dog_02.png"));
  const again = await bench.submit(TWO);
  expect(again.fetchedCount).toBe(2);
  expect(await readFile(bench.path("images/cat.png"))).toEqual(whole);
  expect(bench.fake.count(/\/content/)).toBe(2);
  expect(bench.fake.count(/\/download/)).toBe(1);
});

it("[RUN-4] when many files are missing they come as a ZIP again", async () => {
  const bench = await createBench();
  const many = Array.from({ length: 12 }, (_, i) => ({ prompt: `cat ${i}` }));
  await bench.submit(many);
  await rm(bench.path("images"), { recursive: true });
  expect(await bench.submit(many)).toMatchObject({ fetchedCount: 12 });
  expect(bench.fake.count(/\/content/)).toBe(0);
  expect(bench.fake.count(/\/download/)).toBe(2);
});

it("a directory of another input is refused, and one of another key or service is asked for its own batches", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  await expect(bench.submit([{ prompt: "another" }])).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  await expect(bench.submit(TWO, { request: { name: "x" } })).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
  });
  bench.service.keyFingerprint = "000000000000";
  bench.service.identity = "https://elsewhere.example";
  expect(await bench.submit(TWO)).toMatchObject({ replayed: true });
  const [made] = (await bench.runState()).batches;
  expect(made).toMatchObject({ base_url: bench.fake.url, key_fingerprint: keyFingerprint(FAKE_KEY) });
  expect(bench.fake.batches).toHaveLength(1);
});

it("[RUN-6] foreign files that a run would mix with its own are refused; other files are left alone", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  await rm(bench.path("imgbatch.json"));
  await expect(bench.submit(TWO)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  for (const name of await readdir(bench.dir)) await rm(bench.path(name), { recursive: true });
  await writeFile(bench.path("notes.txt"), "mine");
  await bench.submit(TWO);
  expect(await bench.read("notes.txt")).toBe("mine");
});

it("[RUN-8] the intent is on disk before the request leaves, and an unknown outcome is noted", async () => {
  const bench = await createBench();
  bench.fake.fault(/^POST/, { reset: "after" }, { reset: "after" }, { reset: "after" }, { reset: "after" });
  await expect(bench.submit(TWO)).rejects.toMatchObject({ code: "SUBMISSION_UNKNOWN" });
  const before = await bench.runState();
  expect(before.batches[0]).toMatchObject({ state: "unknown", id: null });
  expect(await bench.submit(TWO)).toMatchObject({ replayed: true });
  expect(bench.fake.batches).toHaveLength(1);
  expect((await bench.runState()).batches[0]?.idempotency_key).toBe(before.batches[0]?.idempotency_key);
});

it("[RUN-8] a refused connection leaves the intent, since nothing was sent", async () => {
  const bench = await createBench();
  await bench.fake.close();
  await expect(bench.submit(TWO)).rejects.toMatchObject({ code: "NETWORK" });
  expect((await bench.runState()).batches[0]).toMatchObject({ state: "intent" });
});

it("--new makes a second batch, replaces the files, and a crash of it is resumed by the same command", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  const first = await bench.runState();
  bench.fake.fault(/\/items\?/, { status: 500 });
  await expect(bench.submit(TWO, { isNew: true })).rejects.toMatchObject({ code: "INTERNAL_ERROR" });
  expect(bench.fake.batches).toHaveLength(2);
  const outcome = await bench.submit(TWO, { isNew: true });
  expect(outcome.replayed).toBe(true);
  expect(bench.fake.batches).toHaveLength(2);
  expect((await bench.runState()).batches[0]?.idempotency_key).not.toBe(first.batches[0]?.idempotency_key);
  await bench.submit(TWO);
  expect(bench.fake.batches).toHaveLength(2);
  await bench.submit(TWO, { isNew: true });
  expect(bench.fake.batches).toHaveLength(3);
});

it("failed items are named in the results and ready to submit again in retry.jsonl", async () => {
  const bench = await createBench({ failing: /dog/ });
  const outcome = await bench.submit(TWO);
  expect(outcome.hasRetry).toBe(true);
  const [, dog] = await bench.results();
  expect(dog).toMatchObject({ status: "failed", files: [], error: { code: "PROVIDER_ITEM_FAILED" } });
  expect(await bench.read("retry.jsonl")).toBe(
    '{"custom_id":"dog_01","prompt":"a dog"}\n{"custom_id":"dog_02","prompt":"a dog"}\n',
  );
});

it("a run larger than a batch becomes several, each with its own key, and one set of results", async () => {
  const bench = await createBench();
  const five = Array.from({ length: 5 }, (_, i) => ({ prompt: `picture ${i}` }));
  const outcome = await bench.submit(five, { limits: { itemsPerBatch: 2 } });
  expect(bench.fake.batches).toHaveLength(3);
  expect(new Set(bench.fake.batches.map((batch) => batch.key)).size).toBe(3);
  expect(outcome.lines.map((line) => line.custom_id)).toEqual(five.map((_, i) => `item_00000${i + 1}`));
  expect(new Set(outcome.lines.map((line) => line.batch_id)).size).toBe(3);
});

it("a crash between two batches is resumed with the second one", async () => {
  const bench = await createBench();
  const five = Array.from({ length: 5 }, (_, i) => ({ prompt: `picture ${i}` }));
  const limits = { itemsPerBatch: 2 };
  const stop = new AbortController();
  const original = bench.fake.batches.push.bind(bench.fake.batches);
  bench.fake.batches.push = (...batches) => {
    if (bench.fake.batches.length === 1) stop.abort(new Error("crash"));
    return original(...batches);
  };
  await expect(bench.submit(five, { limits, signal: stop.signal })).rejects.toThrow("crash");
  const outcome = await bench.submit(five, { limits });
  expect(bench.fake.batches).toHaveLength(3);
  expect(outcome.lines).toHaveLength(5);
});

it("names that one file system takes for one get files of their own, also across batches", async () => {
  const bench = await createBench();
  const outcome = await bench.submit(
    [
      { custom_id: "Cat", prompt: "a" },
      { custom_id: "cat", prompt: "b" },
      { custom_id: "c:t", prompt: "c" },
      { custom_id: "c*t", prompt: "d" },
    ],
    { limits: { itemsPerBatch: 1 } },
  );
  const paths = outcome.lines.map((line) => line.files[0]?.path);
  expect(paths).toEqual(["images/Cat.png", "images/cat~2.png", "images/c_t.png", "images/c_t~2.png"]);
  expect(
    await bench.submit(
      [
        { custom_id: "Cat", prompt: "a" },
        { custom_id: "cat", prompt: "b" },
        { custom_id: "c:t", prompt: "c" },
        { custom_id: "c*t", prompt: "d" },
      ],
      { limits: { itemsPerBatch: 1 } },
    ),
  ).toMatchObject({ fetchedCount: 0 });
});

it("half-written leftovers of a crash are removed", async () => {
  const bench = await createBench();
  await bench.submit(TWO);
  await writeFile(bench.path("images/.cat.png.0123456789ab.partial"), "half");
  await writeFile(bench.path("images/mine.partial"), "mine");
  await bench.submit(TWO);
  expect(await readdir(bench.path("images"))).not.toContain(".cat.png.0123456789ab.partial");
  expect(await readdir(bench.path("images"))).toContain("mine.partial");
});

it("with --zip the ZIP stays, is checked inside, and a damaged one is fetched again", async () => {
  const bench = await createBench();
  const outcome = await bench.submit(TWO, { keepZip: true });
  const zip = outcome.lines[0]?.files[0]?.path ?? "";
  expect(zip).toMatch(/^imgbatch_\w+\.zip$/);
  expect(await readdir(bench.dir)).not.toContain("images");
  await bench.submit(TWO, { keepZip: true });
  expect(bench.fake.count(/\/download/)).toBe(1);
  const bytes = await readFile(bench.path(zip));
  bytes[60] = (bytes[60] ?? 0) ^ 1;
  await writeFile(bench.path(zip), bytes);
  await bench.submit(TWO, { keepZip: true });
  expect(bench.fake.count(/\/download/)).toBe(2);
});

it("reference images are kept once by their hash, sent as Base64, and retry.jsonl finds them", async () => {
  const { png } = await import("../../support/fake-service.ts");
  const bench = await createBench({ failing: /edit/ });
  await writeFile(`${bench.root}/photo.dat`, png("photo"));
  const lines = [
    {
      custom_id: "a",
      prompt: "edit this",
      reference_images: ["photo.dat", { path: "photo.dat", id: "p", type: "style" }],
    },
  ];
  await bench.submit(lines);
  const sent = JSON.parse(bench.fake.requests.find(({ method }) => method === "POST")?.body ?? "");
  const data = png("photo").toString("base64");
  expect(sent.items[0].reference_images).toEqual([
    { mime_type: "image/png", data },
    { id: "p", type: "style", mime_type: "image/png", data },
  ]);
  const [kept] = await readdir(bench.path("references"));
  const retry = JSON.parse(await bench.read("retry.jsonl"));
  expect(retry.reference_images[0]).toEqual({ path: `references/${kept}` });
  expect(await readFile(bench.path(`references/${kept}`))).toEqual(png("photo"));
});

it("a list that leaves items out is an error and no smaller result", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { onlyStart: true });
  bench.fake.batches[0]?.items.pop();
  await expect(bench.submit(TWO)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
});

it("[RUN-1] results are in the order of the input also when the service lists its items in another", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { onlyStart: true });
  bench.fake.batches[0]?.items.reverse();
  await bench.submit(TWO);
  expect((await bench.results()).map((line) => line.custom_id)).toEqual(["cat", "dog_01", "dog_02"]);
});

it("a caller's key that is not the one of the directory's run is a conflict, and nothing is sent", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { explicit: "mine" });
  await expect(bench.submit(TWO, { explicit: "other" })).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
  });
  await expect(bench.submit(TWO, { explicit: "mine", limits: { itemsPerBatch: 1 } })).rejects.toThrow(
    "--new",
  );
  expect(await bench.submit(TWO, { explicit: "mine" })).toMatchObject({ replayed: true, fetchedCount: 0 });
  const several = await createBench();
  await several.submit(TWO, { explicit: "mine", limits: { itemsPerBatch: 1 } });
  expect(several.fake.batches.map(({ key }) => key)).toEqual(["mine-1", "mine-2"]);
  const bad = several.submit(TWO, { explicit: "no\u00fc" });
  await expect(bad).rejects.toThrow("printable ASCII");
  expect(await bench.submit(TWO)).toMatchObject({ replayed: true, fetchedCount: 0 });
  expect(bench.fake.batches).toHaveLength(1);
  expect(await bench.submit(TWO, { isNew: true })).toMatchObject({ replayed: false });
  expect(bench.fake.batches).toHaveLength(2);
});
