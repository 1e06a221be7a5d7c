import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { createRunHarness, type RunHarness } from "../support/run-harness.ts";

const line = (custom_id: string, prompt = `a ${custom_id}`) => ({ custom_id, prompt });
const PETS = [line("cat"), line("dog"), line("cow")];
const EDITED = [line("cat"), line("dog", "a big dog"), line("hen")];

const sent = (harness: RunHarness) =>
  harness.fake.requests.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body));
const sentIds = (harness: RunHarness) =>
  sent(harness).map(({ items }) => items.map(({ custom_id }: { custom_id: string }) => custom_id));
const imagesOf = async (harness: RunHarness, folder = "images") =>
  (await readdir(harness.path(folder))).sort();

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
  expect(await imagesOf(harness, "removed")).toEqual(["cow.png", "dog.png"]);
  expect(await readFile(harness.path("images/cat.png"))).toEqual(cat);
  expect(await readFile(harness.path("removed/dog.png"))).toEqual(oldDog);
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
  expect(await imagesOf(harness, "removed")).toEqual(["cow.png", "dog.png", "dog~2.png", "hen.png"]);
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
  expect(await readFile(harness.path("removed/dog.png"), "utf8")).toBe("my own");
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
  expect(await imagesOf(harness, "removed")).toEqual(["cat_03.png"]);
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
  expect(await imagesOf(harness, "removed")).toEqual(["dog.png"]);
});
