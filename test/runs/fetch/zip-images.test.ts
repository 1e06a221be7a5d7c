import { createHash, randomBytes } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { readItem } from "../../../src/client/batch.ts";
import { inspect } from "../../../src/runs/directory/verified-files.ts";
import { checkInPlace, takeImages } from "../../../src/runs/fetch/save-zip.ts";
import { openZip, readContents } from "../../../src/runs/fetch/zip.ts";
import { packZip, png, type ZippedFile } from "../../support/fake-service.ts";
import { type Bench, createBench } from "../../support/run-harness.ts";
import { tempDir } from "../../support/temp-dir.ts";

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

const manifestOf = (rows: readonly object[]) => Buffer.from(JSON.stringify({ files: rows }));

/** The fake's ZIP with another manifest. */
const claiming = (rows: (files: readonly ZippedFile[]) => readonly object[]) => (files: ZippedFile[]) =>
  files.map((file) => (file.name === "manifest.json" ? { ...file, data: manifestOf(rows(files)) } : file));

it("[SAVE-13] an entry that a manifest names 300 times is one image of the one that was announced", async () => {
  const row = { custom_id: "cat", filename: "images/cat.png" };
  const bench = await createBench({ tamper: claiming(() => Array(300).fill(row)) });
  const outcome = await bench.submit(ONE);
  expect(outcome.lines.map((line) => line.files.length)).toEqual([1]);
  expect(await readdir(bench.path("images"))).toEqual(["cat.png"]);
});

it("[SAVE-13] an entry that a manifest gives to two items is taken for neither, and both come by themselves", async () => {
  const rows = CATS.map(({ custom_id }) => ({ custom_id, filename: "images/cat.png" }));
  const bench = await createBench({ tamper: claiming(() => rows) });
  const outcome = await bench.submit(CATS);
  expect(outcome.lines.map((line) => line.files[0]?.sha256)).toEqual([
    sha256(png("Cat")),
    sha256(png("cat")),
  ]);
  expect(bench.fake.count(CONTENT)).toBe(2);
});

it("[SAVE-13] an entry larger than its manifest tells is given up where it goes beyond", async () => {
  const pieces = [Buffer.alloc(10), Buffer.alloc(10), Buffer.alloc(10)];
  let taken = 0;
  const expected = { sha256: null, bytes: 15, crc32: null };
  const inspecting = inspect(pieces, expected, "cat", async () => void taken++);
  await expect(inspecting).rejects.toMatchObject({ code: "VERIFY_FAILED" });
  expect(taken).toBe(1);
});

it("[RUN-18] a manifest that names one image again and again takes no longer for it", async () => {
  const dir = await tempDir();
  const path = join(dir, "batch.zip");
  const rows = Array.from({ length: 150_000 }, () => ({ custom_id: "cat", filename: "cat.png" }));
  await writeFile(path, await packZip([{ name: "manifest.json", data: manifestOf(rows) }]));
  const zip = await openZip(path);
  onTestFinished(() => zip.close());
  const cat = readItem({ custom_id: "cat", status: "success", image_count: 100 });
  const { stated } = await readContents(zip, cat === null ? [] : [cat]);
  expect(stated.get("cat")).toHaveLength(100);
});

it("[RUN-18] a manifest that is larger than its images warrant is not read", async () => {
  const rows = Array.from({ length: 40_000 }, () => ({ custom_id: "cat", filename: "other.png" }));
  const weight = { name: "weight", data: randomBytes(100_000) };
  const tamper = (files: ZippedFile[]) => [
    ...claiming(() => rows)(files).map((file) => ({ ...file, compress: true })),
    weight,
  ];
  const bench = await createBench({ tamper });
  const outcome = await bench.submit(ONE);
  expect(outcome.lines[0]).toMatchObject({ verified: "crc32", files: [{ path: "images/cat.png" }] });
});

it("[RUN-18] a manifest that does not unpack is a damaged ZIP, and the images come singly", async () => {
  const bench = await createBench({
    tamper: (files) => files.map((file) => ({ ...file, compress: file.name === "manifest.json" })),
  });
  bench.fake.fault(/\/download/, {
    lie: (answer) => {
      const body = Buffer.from(answer.body);
      const at = body.indexOf("manifest.json") + "manifest.json".length;
      body.fill(0xff, at, at + 20);
      return { ...answer, body };
    },
  });
  const outcome = await bench.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("cat"))]);
  expect(bench.fake.count(CONTENT)).toBe(1);
});

it("[CLI-11] an abort ends the opening of a ZIP, the reading of an entry, and the taking of its images", async () => {
  const path = join(await tempDir(), "batch.zip");
  const names = ["a", "b"];
  await writeFile(path, await packZip(names.map((id) => ({ name: `${id}.png`, data: png(id) }))));
  const items = names.flatMap((custom_id) => readItem({ custom_id, status: "success" }) ?? []);
  const reason = new Error("enough");
  await expect(openZip(path, AbortSignal.abort(reason))).rejects.toBe(reason);
  const stop = new AbortController();
  let taken = 0;
  const taking = takeImages(
    path,
    items,
    async (image) => {
      taken++;
      stop.abort(reason);
      return checkInPlace("batch.zip", image);
    },
    stop.signal,
  );
  await expect(taking).rejects.toBe(reason);
  expect(taken).toBe(1);
});
