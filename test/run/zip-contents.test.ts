import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { png } from "../support/fake-service.ts";
import { type Bench, createBench } from "../support/run-harness.ts";

const CATS = [
  { custom_id: "Cat", prompt: "a cat" },
  { custom_id: "cat", prompt: "another cat" },
];
const ONE = [{ custom_id: "cat", prompt: "a cat" }];
const CONTENT = /\/content/;

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** One image was spoilt while the ZIP was packed, and its own address tells no hash. */
async function spoilt(): Promise<Bench> {
  return createBench({
    tamper: (files) =>
      files.map((file) => (file.name === "images/cat.png" ? { ...file, data: png("other") } : file)),
  });
}

it.each(["Cat.png", "cat.png"])(
  "[SAVE-11] of two items with one name the only file %s is taken for neither",
  async (only) => {
    const bench = await createBench({
      foreign: true,
      tamper: (files) => files.filter((file) => file.name === only),
    });
    const outcome = await bench.submit(CATS);
    expect(outcome.lines.map((line) => line.files[0]?.sha256)).toEqual([
      sha256(png("Cat")),
      sha256(png("cat")),
    ]);
    expect(bench.fake.count(CONTENT)).toBe(2);
  },
);

it("[SAVE-11] of a ZIP without a manifest the files of an item count only when all of them are there", async () => {
  const bench = await createBench({
    foreign: true,
    tamper: (files) => files.filter((file) => file.name !== "cat.png"),
  });
  await bench.submit(ONE, { onlyStart: true });
  for (const item of bench.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  const outcome = await bench.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("1")), sha256(png("2"))]);
});

it("[SAVE-12] bytes from elsewhere must be those that the manifest tells, also in a later run", async () => {
  const bench = await spoilt();
  const cut = png("cat").subarray(0, -10);
  for (let run = 0; run < 2; run++) {
    bench.fake.fault(CONTENT, { lie: (answer) => ({ ...answer, headers: {}, body: cut }) });
    const outcome = await bench.submit(ONE);
    expect(outcome.lines[0]).toMatchObject({ files: [], error: { code: "VERIFY_FAILED" } });
  }
  bench.fake.fault(CONTENT, { lie: (answer) => ({ ...answer, headers: {} }) });
  const [line] = (await bench.submit(ONE)).lines;
  expect(line).toMatchObject({ verified: "sha256", files: [{ sha256: sha256(png("cat")) }] });
  expect(await readFile(join(bench.dir, "images/cat.png"))).toEqual(png("cat"));
});

it("[SAVE-12] an image keeps its place when the one before it is not in the ZIP", async () => {
  const bench = await createBench({
    tamper: (files) => files.filter((file) => file.name !== "images/cat.png"),
  });
  await bench.submit(ONE, { onlyStart: true });
  for (const item of bench.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  const outcome = await bench.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("1")), sha256(png("2"))]);
  expect(bench.fake.count(CONTENT)).toBe(1);
});
