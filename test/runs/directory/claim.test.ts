import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { getBatch } from "../../../src/client/batches.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { recordInRunState, withRunLock } from "../../../src/runs/directory/claim.ts";
import { keyFingerprint } from "../../../src/runs/directory/run-service.ts";
import { FAKE_KEY } from "../../support/fake-service.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { createRunHarness } from "../../support/run-harness.ts";
import { tempDir } from "../../support/temp-dir.ts";

const TWO = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog", output_count: 2 },
];

it("[RUN-1] a run leaves the run state, the exact input, the results in input order, and every image", async () => {
  const harness = await createRunHarness();
  const outcome = await harness.submit(TWO);
  expect(outcome.lines.map((line) => line.custom_id)).toEqual(["cat", "dog_01", "dog_02"]);
  expect((await readdir(harness.dir)).sort()).toEqual([
    "images",
    "imgbatch.json",
    "input.jsonl",
    "results.jsonl",
  ]);
  expect((await readdir(harness.path("images"))).sort()).toEqual(["cat.png", "dog_01.png", "dog_02.png"]);
  const [cat] = await harness.results();
  expect(cat).toMatchObject({ custom_id: "cat", status: "success", verified: "sha256" });
  expect(cat?.files[0]).toMatchObject({
    path: "images/cat.png",
    mime_type: "image/png",
    width: 4,
    height: 3,
  });
  const source = (id: string, line: number) => ({ id, file: "prompts.jsonl", line });
  const digest = expect.stringMatching(/^[0-9a-f]{16}$/);
  const input = TWO.map((item, i) => ({ ...item, source: source(item.custom_id, i + 1), digest }));
  const lines = (await harness.read("input.jsonl")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toEqual(input);
  const runState = await harness.runState();
  expect(runState.batches[0]).toMatchObject({ state: "created", status: "completed", item_count: 3 });
});

it("[RUN-4] a flipped byte and a missing file are repaired one by one, and nothing else is touched", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO);
  const whole = await readFile(harness.path("images/cat.png"));
  const flipped = Buffer.from(whole);
  flipped[40] = (flipped[40] ?? 0) ^ 1;
  await writeFile(harness.path("images/cat.png"), flipped);
  await rm(harness.path("images/dog_02.png"));
  const again = await harness.submit(TWO);
  expect(again.fetchedCount).toBe(2);
  expect(await readFile(harness.path("images/cat.png"))).toEqual(whole);
  expect(harness.fake.count(/\/content/)).toBe(2);
  expect(harness.fake.count(/\/download/)).toBe(1);
});

it("[RUN-4] when many files are missing they come as a ZIP again", async () => {
  const harness = await createRunHarness();
  const many = Array.from({ length: 12 }, (_, i) => ({ prompt: `cat ${i}` }));
  await harness.submit(many);
  await rm(harness.path("images"), { recursive: true });
  expect(await harness.submit(many)).toMatchObject({ fetchedCount: 12 });
  expect(harness.fake.count(/\/content/)).toBe(0);
  expect(harness.fake.count(/\/download/)).toBe(2);
});

it("a directory of another input is refused, and one of another key or service is asked for its own batches", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO);
  await expect(harness.submit([{ prompt: "another" }])).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  await expect(harness.submit(TWO, { request: { name: "x" } })).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
  });
  harness.service.keyFingerprint = "000000000000";
  harness.service.identity = "https://elsewhere.example";
  expect(await harness.submit(TWO)).toMatchObject({ replayed: true });
  const [made] = (await harness.runState()).batches;
  expect(made).toMatchObject({ base_url: harness.fake.url, key_fingerprint: keyFingerprint(FAKE_KEY) });
  expect(harness.fake.batches).toHaveLength(1);
});

it("[RUN-6] foreign files that a run would mix with its own are refused; other files are left alone", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO);
  await rm(harness.path("imgbatch.json"));
  await expect(harness.submit(TWO)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  for (const name of await readdir(harness.dir)) await rm(harness.path(name), { recursive: true });
  await writeFile(harness.path("notes.txt"), "mine");
  await harness.submit(TWO);
  expect(await harness.read("notes.txt")).toBe("mine");
});

it("[RUN-8] a refused connection leaves the intent, since nothing was sent", async () => {
  const harness = await createRunHarness();
  await harness.fake.close();
  await expect(harness.submit(TWO)).rejects.toMatchObject({ code: "NETWORK" });
  expect((await harness.runState()).batches[0]).toMatchObject({ state: "intent" });
});

it("--new makes a second batch, replaces the files, and a crash of it is resumed by the same command", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO);
  const first = await harness.runState();
  harness.fake.fault(/\/items\?/, { status: 500 });
  await expect(harness.submit(TWO, { isNew: true })).rejects.toMatchObject({ code: "INTERNAL_ERROR" });
  expect(harness.fake.batches).toHaveLength(2);
  const outcome = await harness.submit(TWO, { isNew: true });
  expect(outcome.replayed).toBe(true);
  expect(harness.fake.batches).toHaveLength(2);
  expect((await harness.runState()).batches[0]?.idempotency_key).not.toBe(first.batches[0]?.idempotency_key);
  await harness.submit(TWO);
  expect(harness.fake.batches).toHaveLength(2);
  await harness.submit(TWO, { isNew: true });
  expect(harness.fake.batches).toHaveLength(3);
});

it("failed items are named in the results and ready to submit again in retry.jsonl", async () => {
  const harness = await createRunHarness({ failing: /dog/ });
  const outcome = await harness.submit(TWO);
  expect(outcome.hasRetry).toBe(true);
  const [, dog] = await harness.results();
  expect(dog).toMatchObject({ status: "failed", files: [], error: { code: "PROVIDER_ITEM_FAILED" } });
  expect(await harness.read("retry.jsonl")).toBe(
    '{"custom_id":"dog_01","prompt":"a dog"}\n{"custom_id":"dog_02","prompt":"a dog"}\n',
  );
});

it("names that one file system takes for one get files of their own, also across batches", async () => {
  const harness = await createRunHarness();
  const prompts = ["Cat", "cat", "c:t", "c*t"].map((custom_id) => ({ custom_id, prompt: custom_id }));
  const limits = { itemsPerBatch: 1 };
  const outcome = await harness.submit(prompts, { limits });
  const paths = outcome.lines.map((line) => line.files[0]?.path);
  expect(paths).toEqual(["images/Cat.png", "images/cat~2.png", "images/c_t.png", "images/c_t~2.png"]);
  expect(await harness.submit(prompts, { limits })).toMatchObject({ fetchedCount: 0 });
});

it("half-written leftovers of a crash are removed", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO);
  await writeFile(harness.path("images/.cat.png.0123456789ab.partial"), "half");
  await writeFile(harness.path("images/mine.partial"), "mine");
  await harness.submit(TWO);
  expect(await readdir(harness.path("images"))).not.toContain(".cat.png.0123456789ab.partial");
  expect(await readdir(harness.path("images"))).toContain("mine.partial");
});

it("with --zip the ZIP stays, is checked inside, and a damaged one is fetched again", async () => {
  const harness = await createRunHarness();
  const outcome = await harness.submit(TWO, { keepZip: true });
  const zip = outcome.lines[0]?.files[0]?.path ?? "";
  expect(zip).toMatch(/^imgbatch_\w+\.zip$/);
  expect(await readdir(harness.dir)).not.toContain("images");
  await harness.submit(TWO, { keepZip: true });
  expect(harness.fake.count(/\/download/)).toBe(1);
  const bytes = await readFile(harness.path(zip));
  bytes[60] = (bytes[60] ?? 0) ^ 1;
  await writeFile(harness.path(zip), bytes);
  await harness.submit(TWO, { keepZip: true });
  expect(harness.fake.count(/\/download/)).toBe(2);
});

it("reference images are kept once by their hash, sent as Base64, and retry.jsonl finds them", async () => {
  const { png } = await import("../../support/fake-service.ts");
  const harness = await createRunHarness({ failing: /edit/ });
  await writeFile(`${harness.root}/photo.dat`, png("photo"));
  const lines = [
    {
      custom_id: "a",
      prompt: "edit this",
      reference_images: ["photo.dat", { path: "photo.dat", id: "p", type: "style" }],
    },
  ];
  await harness.submit(lines);
  const sent = JSON.parse(harness.fake.requests.find(({ method }) => method === "POST")?.body ?? "");
  const data = png("photo").toString("base64");
  expect(sent.items[0].reference_images).toEqual([
    { mime_type: "image/png", data },
    { id: "p", type: "style", mime_type: "image/png", data },
  ]);
  const [kept] = await readdir(harness.path("references"));
  const retry = JSON.parse(await harness.read("retry.jsonl"));
  expect(retry.reference_images[0]).toEqual({ path: `references/${kept}` });
  expect(await readFile(harness.path(`references/${kept}`))).toEqual(png("photo"));
});

it("a list that leaves items out is an error and no smaller result", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { onlyStart: true });
  harness.fake.batches[0]?.items.pop();
  await expect(harness.submit(TWO)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
});

it("[RUN-1] results are in the order of the input also when the service lists its items in another", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { onlyStart: true });
  harness.fake.batches[0]?.items.reverse();
  await harness.submit(TWO);
  expect((await harness.results()).map((line) => line.custom_id)).toEqual(["cat", "dog_01", "dog_02"]);
});

it("a caller's key that is not the one of the directory's run is a conflict, and nothing is sent", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { explicit: "mine" });
  await expect(harness.submit(TWO, { explicit: "other" })).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
  });
  await expect(harness.submit(TWO, { explicit: "mine", limits: { itemsPerBatch: 1 } })).rejects.toThrow(
    "--new",
  );
  expect(await harness.submit(TWO, { explicit: "mine" })).toMatchObject({ replayed: true, fetchedCount: 0 });
  const several = await createRunHarness();
  await several.submit(TWO, { explicit: "mine", limits: { itemsPerBatch: 1 } });
  expect(several.fake.batches.map(({ key }) => key)).toEqual(["mine-1", "mine-2"]);
  const bad = several.submit(TWO, { explicit: "no\u00fc" });
  await expect(bad).rejects.toThrow("printable ASCII");
  expect(await harness.submit(TWO)).toMatchObject({ replayed: true, fetchedCount: 0 });
  expect(harness.fake.batches).toHaveLength(1);
  expect(await harness.submit(TWO, { isNew: true })).toMatchObject({ replayed: false });
  expect(harness.fake.batches).toHaveLength(2);
});

it("[RUN-21] who only looks at a run notes what it saw, and leaves the run state to the one that works on it", async () => {
  const harness = await createRunHarness();
  const { batches } = await harness.submit([{ prompt: "a" }], { onlyStart: true });
  const id = batches[0]?.id ?? "";
  await getBatch(harness.http, id);
  const { batch } = await getBatch(harness.http, id);
  await withRunLock(harness.dir, { clock: systemClock }, () =>
    recordInRunState(harness.dir, [batch], systemClock),
  );
  expect((await harness.runState()).batches[0]?.status).toBe("queued");
  await recordInRunState(harness.dir, [batch], systemClock);
  expect((await harness.runState()).batches[0]?.status).toBe("completed");
});

it("[RUN-21] a link in the place of a folder keeps work out of the run, and not the note of who only looks at it", async () => {
  const harness = await createRunHarness();
  const { batches } = await harness.submit([{ prompt: "a" }]);
  const elsewhere = join(await tempDir(), "images");
  await rename(harness.path("images"), elsewhere);
  await symlink(elsewhere, harness.path("images"));
  await expect(withRunLock(harness.dir, { clock: systemClock }, async () => {})).rejects.toMatchObject({
    code: "DIRECTORY_CONFLICT",
    advice: expect.stringContaining("in the place of the link"),
  });
  const { batch } = await getBatch(harness.http, batches[0]?.id ?? "");
  await recordInRunState(harness.dir, [{ ...batch, status: "cancelled" }], systemClock);
  expect((await harness.runState()).batches[0]?.status).toBe("cancelled");
});

it("directories that were made for work that leaves nothing do not stay; those that were there do", async () => {
  const root = await tempDir();
  const clock = new InstantClock();
  const dir = join(root, "a", "b");
  await expect(withRunLock(dir, { clock }, async () => Promise.reject(new Error("refused")))).rejects.toThrow(
    "refused",
  );
  expect(await readdir(root)).toEqual([]);
  await mkdir(join(root, "a"));
  await withRunLock(dir, { clock }, async () => {});
  expect(await readdir(root, { recursive: true })).toEqual(["a"]);
  await withRunLock(dir, { clock }, () => writeFile(join(dir, "kept"), ""));
  expect(await readdir(dir)).toEqual(["kept"]);
});
