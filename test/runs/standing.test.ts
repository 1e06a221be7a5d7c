import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import fc from "fast-check";
import { expect, it } from "vitest";
import { ImgbatchError } from "../../src/contract/errors.ts";
import { judgeMissing, repairsOf } from "../../src/runs/standing.ts";
import { type Answer, png } from "../support/fake-service.ts";
import { createRunHarness, type RunHarness } from "../support/run-harness.ts";

const PETS = ["cat", "dog", "cow"].map((id) => ({ custom_id: id, prompt: `a ${id}` }));
const LOST = {
  status: 500,
  headers: { "x-request-id": "req_lost" },
  body: { error: { code: "BATCH_IMAGE_RESULT_MISSING", message: "It is gone." } },
};
const ZIP = /^GET .*\/download/;
const CONTENT = /^GET .*\/content/;

/** A service that has lost its cat, and answers no ZIP with it. */
async function lostCat(): Promise<RunHarness> {
  const harness = await createRunHarness();
  harness.fake.always(ZIP, LOST);
  harness.fake.always(/cat\/content/, LOST);
  return harness;
}

it("[SAVE-1] the same command fetches only what is missing, and then the run is whole", async () => {
  const harness = await createRunHarness();
  harness.fake.fault(ZIP, LOST);
  harness.fake.fault(/cat\/content/, LOST, LOST);
  await harness.submit(PETS);
  const counts = () => [harness.fake.count(ZIP), harness.fake.count(CONTENT)];
  expect(counts()).toEqual([1, 3]);
  expect(await harness.submit(PETS)).toMatchObject({ fetchedCount: 0 });
  expect(counts()).toEqual([1, 4]);
  const outcome = await harness.submit(PETS);
  expect(outcome).toMatchObject({ fetchedCount: 1 });
  expect(counts()).toEqual([1, 5]);
  expect(judgeMissing(outcome.lines)).toBeNull();
});

it.each([
  ["a ZIP of the wrong path", { status: 404 }],
  [
    "a ZIP that would be too large",
    { status: 400, body: { error: { code: "BATCH_IMAGE_DOWNLOAD_TOO_LARGE" } } },
  ],
  ["a ZIP that the service cannot make", { status: 500 }],
  ["a ZIP that breaks off each time", { cutAt: 80 }],
  ["a ZIP that is a web page", { lie: (answer: Answer) => ({ ...answer, body: Buffer.from("<html>") }) }],
])("[SAVE-1] %s is replaced by single images", async (_, fault) => {
  const harness = await createRunHarness();
  harness.fake.always(ZIP, fault);
  const outcome = await harness.submit(PETS);
  expect(outcome).toMatchObject({ fetchedCount: 3 });
  expect((await readdir(harness.dir)).sort()).toEqual([
    "images",
    "imgbatch.json",
    "input.jsonl",
    "results.jsonl",
  ]);
});

it("[SAVE-1] of an item with several images those that can be had are here, and stay when the rest comes", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS.slice(0, 1), { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2"), png("3")];
  harness.fake.fault(ZIP, LOST);
  harness.fake.fault(/image_index=0/, LOST);
  const outcome = await harness.submit(PETS.slice(0, 1));
  expect(outcome.lines[0]?.files.map((file) => [file.path, file.image_index])).toEqual([
    ["images/cat_2.png", 1],
    ["images/cat_3.png", 2],
  ]);
  expect(judgeMissing(outcome.lines)?.exit).toBe("temporary");
  const again = await harness.submit(PETS.slice(0, 1));
  expect(again.lines[0]?.files.map((file) => [file.path, file.image_index])).toEqual([
    ["images/cat.png", undefined],
    ["images/cat_2.png", undefined],
    ["images/cat_3.png", undefined],
  ]);
  expect(harness.fake.count(CONTENT)).toBe(4);
});

it("[SAVE-1] a service that does not answer any more is not asked for every image, and the same command goes on", async () => {
  const harness = await createRunHarness();
  harness.fake.fault(ZIP, LOST);
  harness.fake.always(CONTENT, { reset: "before" });
  await expect(harness.submit(PETS)).rejects.toMatchObject({ code: "NETWORK" });
  expect(harness.fake.count(/cow\/content/)).toBe(0);
  expect(await readdir(harness.dir)).not.toContain("results.jsonl");
});

it("[SAVE-1] a wrong key and deleted outputs end the fetching, as they concern every image", async () => {
  for (const status of [401, 410]) {
    const harness = await createRunHarness();
    harness.fake.fault(ZIP, LOST);
    harness.fake.fault(CONTENT, { status });
    const outcome = harness.submit(PETS);
    if (status === 401) await expect(outcome).rejects.toMatchObject({ code: "INVALID_API_KEY" });
    else expect(judgeMissing((await outcome).lines)?.exit).toBe("gone");
    expect(harness.fake.count(CONTENT)).toBe(1);
  }
});

it("[SAVE-1] what a new run cannot have yet does not cost the image of the one before", async () => {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  const before = await readFile(harness.path("images/cat.png"));
  harness.fake.fault(ZIP, LOST);
  harness.fake.fault(/cat\/content/, LOST);
  await harness.submit(PETS, { isNew: true });
  expect(await readFile(harness.path("images/cat.png"))).toEqual(before);
  expect(await harness.submit(PETS, { isNew: true })).toMatchObject({ fetchedCount: 1 });
  expect(harness.fake.batches).toHaveLength(2);
  expect((await readdir(harness.path("images"))).sort()).toEqual(["cat.png", "cow.png", "dog.png"]);
});

it("[SAVE-1] where the ZIP is to be kept and cannot be had, the images come one by one", async () => {
  const harness = await lostCat();
  const outcome = await harness.submit(PETS, { keepZip: true });
  expect(outcome.lines.map((line) => line.files.map((file) => file.path))).toEqual([
    [],
    ["images/dog.png"],
    ["images/cow.png"],
  ]);
  await rm(harness.path("images/dog.png"));
  await harness.submit(PETS, { keepZip: true });
  expect(harness.fake.count(/dog\/content/)).toBe(2);
  expect(harness.fake.count(/cow\/content/)).toBe(1);
});

const CAT = [{ custom_id: "cat", prompt: "a cat" }];
const gone = {
  status: 404,
  body: { error: { code: "BATCH_IMAGE_ITEM_NOT_FOUND", message: "No such image." } },
};

/** A batch of one item with two images, no ZIP, and none of its first image. */
async function withoutFirst(): Promise<RunHarness> {
  const harness = await createRunHarness();
  await harness.submit(CAT, { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  harness.fake.always(/\/download/, { status: 404 });
  harness.fake.always(/image_index=0/, gone);
  return harness;
}

it("a disk that refuses an image after another could not be had is what went wrong", async () => {
  const harness = await withoutFirst();
  await mkdir(harness.path("images/cat_2.png/in-the-way"), { recursive: true });
  await expect(harness.submit(CAT)).rejects.toMatchObject({ code: "SAVE_FAILED" });
});

it("a key that is refused after an image could not be had is what went wrong", async () => {
  const harness = await withoutFirst();
  harness.fake.always(/image_index=1/, { status: 401 });
  await expect(harness.submit(CAT)).rejects.toMatchObject({ code: "INVALID_API_KEY" });
});

it("a signal ends the work also after an image could not be had", async () => {
  const harness = await withoutFirst();
  const stop = new AbortController();
  const reason = new ImgbatchError("TERMINATED");
  harness.fake.always(/image_index=1/, { handle: () => stop.abort(reason) });
  await expect(harness.submit(CAT, { signal: stop.signal })).rejects.toBe(reason);
  expect(harness.fake.count(/content/)).toBe(2);
});

it("a key that is refused for one batch of a run is not tried on the others", async () => {
  const harness = await createRunHarness();
  const three = ["a", "b", "c"].map((custom_id) => ({ custom_id, prompt: custom_id }));
  const limits = { itemsPerBatch: 1 };
  await harness.submit(three, { limits, onlyStart: true });
  harness.fake.always(/\/items\?/, { status: 401 });
  await expect(harness.submit(three, { limits })).rejects.toMatchObject({ code: "INVALID_API_KEY" });
  expect(harness.fake.count(/\/items\?/)).toBe(1);
});

/** Each outcome of an image, with the step that makes the image come. */
const FATES = {
  here: { status: "success" },
  failed: { status: "failed", code: "PROVIDER_ITEM_FAILED" },
  refused: { status: "failed", code: "SAFETY_BLOCKED" },
  late: { status: "success", code: "HTTP_503" },
  lost: { status: "success", code: "BATCH_IMAGE_RESULT_MISSING" },
  deleted: { status: "success", code: "BATCH_IMAGE_OUTPUT_DELETED" },
} as const;
type Fate = keyof typeof FATES;

/** Every command that brings images: those that it makes, which are paid, and those that are here afterwards. */
const COMMANDS: Record<string, { pays: readonly Fate[]; brings: readonly Fate[] }> = {
  fetch: { pays: [], brings: ["late"] },
  retry: { pays: ["failed"], brings: ["late", "failed"] },
  retryLost: { pays: ["failed", "lost", "deleted"], brings: ["late", "failed", "lost", "deleted"] },
  retryRefused: { pays: ["failed", "refused"], brings: ["late", "failed"] },
  submitNew: {
    pays: ["here", "failed", "refused", "late", "lost", "deleted"],
    brings: ["failed", "late", "lost", "deleted"],
  },
};

const FILE = { path: "images/a.png", sha256: "", bytes: 1, mime_type: "image/png", width: 1, height: 1 };

function lineOf(fate: Fate) {
  const { status, code }: { status: string; code?: string } = FATES[fate];
  if (code === undefined) return { status, files: [FILE] };
  return { status, files: [], error: { code, message: "x", source: "service" } };
}

const count = (fates: readonly Fate[], some: readonly Fate[]) =>
  fates.filter((fate) => some.includes(fate)).length;

it("[REPAIR-1] no advice costs more than another command that brings the same images, and the cheapest comes first", () => {
  const fates = fc.array(fc.constantFrom(...(Object.keys(FATES) as Fate[])), { minLength: 1, maxLength: 12 });
  fc.assert(
    fc.property(fates, (run) => {
      const advised = repairsOf(run.map(lineOf)).filter(({ kind }) => kind !== "edit");
      for (const { kind, images } of advised) {
        const command = COMMANDS[kind];
        expect(images).toBe(count(run, command?.pays ?? []));
        for (const other of Object.values(COMMANDS)) {
          const doesAll = run.every((fate) => !command?.brings.includes(fate) || other.brings.includes(fate));
          if (doesAll) expect(count(run, other.pays)).toBeGreaterThanOrEqual(images);
        }
      }
      const prices = advised.map(({ images }) => images);
      expect(prices).toEqual(prices.toSorted((a, b) => a - b));
      const brought = new Set(advised.flatMap(({ kind }) => COMMANDS[kind]?.brings ?? []));
      for (const fate of run) if (fate !== "here" && fate !== "refused") expect(brought).toContain(fate);
    }),
  );
});

it("[REPAIR-1] refused prompts have to change, and a whole run needs nothing", () => {
  const kinds = (...run: Fate[]): [ReturnType<typeof repairsOf>[number]["kind"], number][] =>
    repairsOf(run.map(lineOf)).map(({ kind, images }) => [kind, images]);
  expect(kinds("here", "refused")).toEqual([["edit", 1]]);
  expect(kinds("here", "here")).toEqual([]);
  expect(kinds("lost", "failed", "here")).toEqual([
    ["fetch", 0],
    ["retry", 1],
    ["retryLost", 2],
  ]);
  expect(kinds("deleted")).toEqual([["retryLost", 1]]);
});

it("[GEN-17] an image that two requests may have paid for is lost, not failed: only a retry of lost images asks for it again", () => {
  const error = { code: "REALTIME_OUTCOME_UNKNOWN", message: "It may have been made.", source: "service" };
  expect(repairsOf([{ status: "failed", files: [], error }])).toEqual([{ kind: "retryLost", images: 1 }]);
});
