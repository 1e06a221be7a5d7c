import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { type Bench, createBench } from "../support/run-harness.ts";

const line = (custom_id: string, prompt = `a ${custom_id}`) => ({ custom_id, prompt });
const PETS = [line("cat"), line("dog"), line("cow")];
const EDITED = [line("cat"), line("dog", "a big dog"), line("hen")];

const sent = (bench: Bench) =>
  bench.fake.requests.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body));
const sentIds = (bench: Bench) =>
  sent(bench).map(({ items }) => items.map(({ custom_id }: { custom_id: string }) => custom_id));
const imagesOf = async (bench: Bench, folder = "images") => (await readdir(bench.path(folder))).sort();

it("[UPDATE-2] an update makes only the changed and added prompts, keeps the others, and moves old images aside", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  const cat = await readFile(bench.path("images/cat.png"));
  const oldDog = await readFile(bench.path("images/dog.png"));
  const outcome = await bench.submit(EDITED, { isUpdate: true });
  expect(outcome).toMatchObject({ replayed: false, fetchedCount: 2 });
  expect(sent(bench)[1]).toMatchObject({
    parent_batch_id: bench.fake.batches[0]?.id,
    items: [line("dog", "a big dog"), line("hen")],
  });
  expect(await imagesOf(bench)).toEqual(["cat.png", "dog.png", "hen.png"]);
  expect(await imagesOf(bench, "removed")).toEqual(["cow.png", "dog.png"]);
  expect(await readFile(bench.path("images/cat.png"))).toEqual(cat);
  expect(await readFile(bench.path("removed/dog.png"))).toEqual(oldDog);
  const [first, second] = bench.fake.batches.map(({ id }) => id);
  expect((await bench.results()).map((each) => [each.custom_id, each.batch_id])).toEqual([
    ["cat", first],
    ["dog", second],
    ["hen", second],
  ]);
  expect((await bench.runState()).batches.map(({ round, state }) => [round, state])).toEqual([
    [0, "created"],
    [1, "created"],
  ]);
});

it("[UPDATE-2] afterwards the same prompts are a finished run, and the first ones are the changed ones", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  await bench.submit(EDITED, { isUpdate: true });
  for (const isUpdate of [true, false])
    expect(await bench.submit(EDITED, { isUpdate })).toMatchObject({ fetchedCount: 0 });
  await rm(bench.path("images/dog.png"));
  expect(await bench.submit(EDITED)).toMatchObject({ fetchedCount: 1 });
  expect(bench.fake.batches).toHaveLength(2);
  await expect(bench.submit(PETS)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
  await bench.submit(PETS, { isUpdate: true });
  expect(sentIds(bench)).toEqual([
    ["cat", "dog", "cow"],
    ["dog", "hen"],
    ["dog", "cow"],
  ]);
  expect(await imagesOf(bench)).toEqual(["cat.png", "cow.png", "dog.png"]);
  expect(await imagesOf(bench, "removed")).toEqual(["cow.png", "dog.png", "dog~2.png", "hen.png"]);
});

it("a line that is inserted among prompts without ids makes one image, and no file changes its name", async () => {
  const bench = await createBench();
  const prompts = ["red fox", "blue owl", "grey owl"].map((prompt) => ({ prompt }));
  await bench.submit(prompts);
  const before = await imagesOf(bench);
  const [first, ...others] = prompts;
  const edited = [first as object, { prompt: "green frog" }, ...others];
  const error = await bench.submit(edited).catch((thrown) => thrown);
  expect(error.message).toContain("1 prompt added; the model is the same");
  await bench.submit(edited, { isUpdate: true });
  expect(sent(bench)[1].items.map(({ prompt }: { prompt: string }) => prompt)).toEqual(["green frog"]);
  expect(await imagesOf(bench)).toEqual(expect.arrayContaining(before));
  expect((await bench.results()).map((each) => (each as { prompt?: string }).prompt)).toEqual([
    "red fox",
    "green frog",
    "blue owl",
    "grey owl",
  ]);
  await bench.submit(edited.toSpliced(2, 1, { prompt: "a barn owl" }), { isUpdate: true });
  expect(sent(bench)[2].items).toEqual([{ custom_id: "item_000002", prompt: "a barn owl" }]);
});

it("other settings change every prompt, and a prompt that asks for more images is changed", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  const other = { request: { mimeType: "image/webp" } } as const;
  const error = await bench.submit(PETS, other).catch((thrown) => thrown);
  expect(error.message).toContain("3 prompts changed; the type was image/png, not image/webp");
  expect(error.advice).toBe("name another directory with --output to make all images there");
  await bench.submit(PETS.with(0, { ...line("cat"), output_count: 2 } as never), { isUpdate: true });
  expect(sentIds(bench)[1]).toEqual(["cat_01", "cat_02"]);
  expect(await imagesOf(bench)).toEqual(["cat_01.png", "cat_02.png", "cow.png", "dog.png"]);
});

it("an update that only removes or reorders prompts makes and pays nothing", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  await bench.submit([line("cow"), line("cat")], { isUpdate: true });
  expect(bench.fake.batches).toHaveLength(1);
  expect(await imagesOf(bench)).toEqual(["cat.png", "cow.png"]);
  expect((await bench.results()).map((each) => each.custom_id)).toEqual(["cow", "cat"]);
});

it("an image that was changed by hand is moved aside too, and is never overwritten", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  await writeFile(bench.path("images/dog.png"), "my own");
  await bench.submit(EDITED, { isUpdate: true });
  expect(await readFile(bench.path("removed/dog.png"), "utf8")).toBe("my own");
});

it("an update that the service refuses is paid once when it is mended, with what was edited since", async () => {
  const bench = await createBench();
  await bench.submit(PETS);
  const refusal = {
    status: 402,
    body: { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", message: "No." } },
  };
  bench.fake.fault(/^POST/, refusal, refusal);
  for (let i = 0; i < 2; i++)
    await expect(bench.submit(EDITED, { isUpdate: true })).rejects.toMatchObject({ httpStatus: 402 });
  const again = EDITED.with(2, line("duck"));
  await bench.submit(again, { isUpdate: true });
  expect(sentIds(bench).at(-1)).toEqual(["dog", "duck"]);
  expect(bench.fake.batches).toHaveLength(2);
  expect(await imagesOf(bench)).toEqual(["cat.png", "dog.png", "duck.png"]);
});

it("another number of images makes only those that are not there", async () => {
  const bench = await createBench();
  const cats = (output_count: number) => ({ ...line("cat"), output_count });
  await bench.submit([cats(2), line("dog")]);
  await bench.submit([cats(3), line("dog")], { isUpdate: true });
  expect(sentIds(bench)).toEqual([["cat", "dog"], ["cat_03"]]);
  await bench.submit([cats(2), line("dog")], { isUpdate: true });
  expect(bench.fake.batches).toHaveLength(2);
  expect(await imagesOf(bench)).toEqual(["cat_01.png", "cat_02.png", "dog.png"]);
  expect(await imagesOf(bench, "removed")).toEqual(["cat_03.png"]);
  await expect(bench.submit([cats(2), line("cow", "a dog")])).rejects.toMatchObject({
    message: expect.stringContaining("1 of the added prompts is a removed one with another id"),
  });
});

it("--new after an update that was not waited for moves the images of removed prompts aside", async () => {
  const bench = await createBench();
  await bench.submit([line("dog"), line("cat")]);
  const edited = [line("cat"), line("hen")];
  await bench.submit(edited, { isUpdate: true, onlyStart: true });
  await bench.submit(edited, { isNew: true });
  expect(await imagesOf(bench)).toEqual(["cat.png", "hen.png"]);
  expect(await imagesOf(bench, "removed")).toEqual(["dog.png"]);
});
