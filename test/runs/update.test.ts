import files, { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { expect, it, onTestFinished } from "vitest";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { createRunHarness, type RunHarness } from "../support/run-harness.ts";

const line = (custom_id: string, prompt = `a ${custom_id}`) => ({ custom_id, prompt });
const PETS = [line("cat"), line("dog"), line("cow")];
const EDITED = [line("cat"), line("dog", "a big dog"), line("hen")];

const sent = (harness: RunHarness) =>
  harness.fake.requests.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body));
const sentIds = (harness: RunHarness) =>
  sent(harness).map(({ items }) => items.map(({ custom_id }: { custom_id: string }) => custom_id));
const imagesOf = async (harness: RunHarness, folder = "images") =>
  (await readdir(harness.path(folder))).filter((name) => name !== "results.jsonl").sort();

it("[UPDATE-2] an update makes only the changed and added prompts, keeps the others, and moves old images aside", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  const cat = await readFile(harness.path("images/cat.png"));
  const oldDog = await readFile(harness.path("images/dog.png"));
  const outcome = await harness.submit(EDITED, { isUpdate: true });
  expect(outcome).toMatchObject({ replayed: false, fetchedCount: 2 });
  expect(sent(harness)[1]).toMatchObject({
    parent_batch_id: harness.fake.batches[0]?.id,
    items: [line("dog", "a big dog"), line("hen")],
  });
  expect(await imagesOf(harness)).toEqual(["cat.png", "dog.png", "hen.png"]);
  expect(await imagesOf(harness, "versions")).toEqual(["cow.png", "dog.png"]);
  expect(await readFile(harness.path("images/cat.png"))).toEqual(cat);
  expect(await readFile(harness.path("versions/dog.png"))).toEqual(oldDog);
  const [first, second] = harness.fake.batches.map(({ id }) => id);
  expect((await harness.results()).map((each) => [each.custom_id, each.batch_id])).toEqual([
    ["cat", first],
    ["dog", second],
    ["hen", second],
  ]);
  expect((await harness.runState()).batches.map(({ round, state }) => [round, state])).toEqual([
    [0, "created"],
    [1, "created"],
  ]);
});

it("[UPDATE-2] afterwards the same prompts are a finished run, and the first ones are the changed ones", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  await harness.submit(EDITED, { isUpdate: true });
  for (const isUpdate of [true, false])
    expect(await harness.submit(EDITED, { isUpdate })).toMatchObject({ fetchedCount: 0 });
  await rm(harness.path("images/dog.png"));
  expect(await harness.submit(EDITED)).toMatchObject({ fetchedCount: 1 });
  expect(harness.fake.batches).toHaveLength(2);
  await expect(harness.submit(PETS)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  await harness.submit(PETS, { isUpdate: true });
  expect(sentIds(harness)).toEqual([
    ["cat", "dog", "cow"],
    ["dog", "hen"],
    ["dog", "cow"],
  ]);
  expect(await imagesOf(harness)).toEqual(["cat.png", "cow.png", "dog.png"]);
  expect(await imagesOf(harness, "versions")).toEqual(["cow.png", "dog.png", "hen.png"]);
});

it("a line that is inserted among prompts without ids makes one image, and no file changes its name", async () => {
  const harness = await createRunHarness();
  const prompts = ["red fox", "blue owl", "grey owl"].map((prompt) => ({ prompt }));
  await harness.submit(prompts);
  const before = await imagesOf(harness);
  const [first, ...others] = prompts;
  const edited = [first as object, { prompt: "green frog" }, ...others];
  const error = await harness.submit(edited).catch((thrown) => thrown);
  expect(error.message).toContain("1 prompt added; the model is the same");
  await harness.submit(edited, { isUpdate: true });
  expect(sent(harness)[1].items.map(({ prompt }: { prompt: string }) => prompt)).toEqual(["green frog"]);
  expect(await imagesOf(harness)).toEqual(expect.arrayContaining(before));
  expect((await harness.results()).map((each) => (each as { prompt?: string }).prompt)).toEqual([
    "red fox",
    "green frog",
    "blue owl",
    "grey owl",
  ]);
  await harness.submit(edited.toSpliced(2, 1, { prompt: "a barn owl" }), { isUpdate: true });
  expect(sent(harness)[2].items).toEqual([{ custom_id: "item_000002", prompt: "a barn owl" }]);
});

it("other settings change every prompt, and a prompt that asks for more images is changed", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  const other = { request: { mimeType: "image/webp" } } as const;
  const error = await harness.submit(PETS, other).catch((thrown) => thrown);
  expect(error.message).toContain("3 prompts changed; the type was image/png, not image/webp");
  expect(error.advice).toBe("name another directory with --output to make all images there");
  await harness.submit(PETS.with(0, { ...line("cat"), output_count: 2 } as never), { isUpdate: true });
  expect(sentIds(harness)[1]).toEqual(["cat_01", "cat_02"]);
  expect(await imagesOf(harness)).toEqual(["cat_01.png", "cat_02.png", "cow.png", "dog.png"]);
});

it("an update that only removes or reorders prompts makes and pays nothing", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  await harness.submit([line("cow"), line("cat")], { isUpdate: true });
  expect(harness.fake.batches).toHaveLength(1);
  expect(await imagesOf(harness)).toEqual(["cat.png", "cow.png"]);
  expect((await harness.results()).map((each) => each.custom_id)).toEqual(["cow", "cat"]);
});

it("an image that was changed by hand is moved aside too, and is never overwritten", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  await writeFile(harness.path("images/dog.png"), "my own");
  await harness.submit(EDITED, { isUpdate: true });
  expect(await readFile(harness.path("versions/dog.png"), "utf8")).toBe("my own");
});

it("another number of images makes only those that are not there", async () => {
  const harness = await createRunHarness();
  const cats = (output_count: number) => ({ ...line("cat"), output_count });
  await harness.submit([cats(2), line("dog")]);
  await harness.submit([cats(3), line("dog")], { isUpdate: true });
  expect(sentIds(harness)).toEqual([["cat", "dog"], ["cat_03"]]);
  await harness.submit([cats(2), line("dog")], { isUpdate: true });
  expect(harness.fake.batches).toHaveLength(2);
  expect(await imagesOf(harness)).toEqual(["cat_01.png", "cat_02.png", "dog.png"]);
  expect(await imagesOf(harness, "versions")).toEqual(["cat_03.png"]);
  await expect(harness.submit([cats(2), line("cow", "a dog")])).rejects.toMatchObject({
    message: expect.stringContaining("1 of the added prompts is a removed one with another id"),
  });
});

it("--new after an update that was not waited for moves the images of removed prompts aside", async () => {
  const harness = await createRunHarness();
  await harness.submit([line("dog"), line("cat")]);
  const edited = [line("cat"), line("hen")];
  await harness.submit(edited, { isUpdate: true, onlyStart: true });
  await harness.submit(edited, { isNew: true });
  expect(await imagesOf(harness)).toEqual(["cat.png", "hen.png"]);
  expect(await imagesOf(harness, "versions")).toEqual(["dog.png"]);
});

/** Counts the changes of files, and lets none happen from the one on at which the process is killed. */
const disk = { changes: 0, killAt: Number.POSITIVE_INFINITY };

function watchDisk(): void {
  const { rename, rm, copyFile, mkdir, open } = files;
  const real = { rename, rm, copyFile, mkdir, open };
  const change = (work: (...args: never[]) => Promise<unknown>) => {
    return async (...args: never[]) => {
      disk.changes++;
      if (disk.changes >= disk.killAt) throw new Error("killed");
      return work(...args);
    };
  };
  Object.assign(
    files,
    Object.fromEntries(Object.entries(real).map(([name, work]) => [name, change(work as never)])),
  );
  syncBuiltinESMExports();
  onTestFinished(() => {
    Object.assign(files, real);
    syncBuiltinESMExports();
  });
}

/** An ordinary run takes one change of this many; those that are lost with the answers begin at another place. */
const EVERY = Math.round(60 / fuzzRuns(60));

const FOUR = [line("cat"), line("dog"), line("cow"), { prompt: "no name" }];
const FIVE = [
  line("cat"),
  { prompt: "another" },
  line("dog", "a big dog"),
  line("hen"),
  { prompt: "no name" },
];

/** Updates a run, kills that at a change of a file, and updates it again. Returns whether there was such a change. */
async function killedAt(killAt: number, answersLost: number): Promise<boolean> {
  const harness = await createRunHarness();
  await harness.submit(FOUR);
  const before = new Map<string, Buffer>();
  for (const name of await readdir(harness.path("images")))
    before.set(name, await readFile(harness.path(`images/${name}`)));
  for (let i = 0; i < answersLost; i++) harness.fake.fault(/^POST/, { reset: "after" });
  Object.assign(disk, { changes: 0, killAt });
  await harness.submit(FIVE, { isUpdate: true }).catch(() => {});
  const isKilled = disk.changes >= killAt;
  disk.killAt = Number.POSITIVE_INFINITY;
  const again = () => harness.submit(FIVE, { isUpdate: true });
  await again().catch(again);
  const images = ["cat.png", "dog.png", "hen.png", "item_000002.png", "item_000004.png"];
  expect((await readdir(harness.path("images"))).sort()).toEqual(images);
  for (const [folder, name] of [
    ["images", "cat.png"],
    ["images", "item_000004.png"],
    ["versions", "cow.png"],
    ["versions", "dog.png"],
  ] as const)
    expect(await readFile(harness.path(`${folder}/${name}`))).toEqual(before.get(name));
  expect(await imagesOf(harness, "versions")).toEqual(["cow.png", "dog.png"]);
  const versions = (await harness.read("versions/results.jsonl")).trim().split("\n");
  expect(versions.map((each) => JSON.parse(each).custom_id)).toEqual(["dog", "cow"]);
  const results = (await harness.results()).map(({ custom_id, status, files }) => [
    custom_id,
    status,
    files.length,
  ]);
  expect(results).toEqual(
    ["cat", "item_000002", "dog", "hen", "item_000004"].map((id) => [id, "success", 1]),
  );
  expect(harness.fake.batches.map(({ items }) => items.map((item) => item.custom_id))).toEqual([
    ["cat", "dog", "cow", "item_000004"],
    ["item_000002", "dog", "hen"],
  ]);
  expect((await readdir(harness.dir)).filter((name) => name.startsWith("."))).toEqual([]);
  return isKilled;
}

it.each([0, 4])(
  "[UPDATE-6] an update that is killed at any change of a file goes on with the same command: nothing is paid twice, nothing is lost (%i lost answers)",
  async (answersLost) => {
    watchDisk();
    let killAt = answersLost === 0 ? 1 : Math.min(2, EVERY);
    while (await killedAt(killAt, answersLost)) killAt += EVERY;
    expect(killAt).toBeGreaterThan(answersLost === 0 ? 15 : 8);
  },
  120_000,
);
