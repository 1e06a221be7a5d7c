import { createHash, randomBytes } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { expect, it } from "vitest";
import { readItem } from "../../../src/client/answers.ts";
import { inspect } from "../../../src/runs/directory/run-files.ts";
import { openZip, takeImages } from "../../../src/runs/fetch/zip.ts";
import { packZip, png, type ZippedFile } from "../../support/fake-service.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { createRunHarness, type RunHarness } from "../../support/run-harness.ts";
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
async function spoilt(): Promise<RunHarness> {
  return createRunHarness({
    tamper: (files) =>
      files.map((file) => (file.name === "images/cat.png" ? { ...file, data: png("other") } : file)),
  });
}

it.each(["Cat.png", "cat.png"])(
  "of two items with one name the only file %s is taken for neither",
  async (only) => {
    const harness = await createRunHarness({
      foreign: true,
      tamper: (files) => files.filter((file) => file.name === only),
    });
    const outcome = await harness.submit(CATS);
    expect(outcome.lines.map((line) => line.files[0]?.sha256)).toEqual([
      sha256(png("Cat")),
      sha256(png("cat")),
    ]);
    expect(harness.fake.count(CONTENT)).toBe(2);
  },
);

it("of a ZIP without a manifest the files of an item count only when all of them are there", async () => {
  const harness = await createRunHarness({
    foreign: true,
    tamper: (files) => files.filter((file) => file.name !== "cat.png"),
  });
  await harness.submit(ONE, { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  const outcome = await harness.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("1")), sha256(png("2"))]);
});

it("bytes from elsewhere must be those that the manifest tells, also in a later run", async () => {
  const harness = await spoilt();
  const cut = png("cat").subarray(0, -10);
  for (let run = 0; run < 2; run++) {
    harness.fake.fault(CONTENT, { lie: (answer) => ({ ...answer, headers: {}, body: cut }) });
    const outcome = await harness.submit(ONE);
    expect(outcome.lines[0]).toMatchObject({ files: [], error: { code: "VERIFY_FAILED" } });
  }
  harness.fake.fault(CONTENT, { lie: (answer) => ({ ...answer, headers: {} }) });
  const [line] = (await harness.submit(ONE)).lines;
  expect(line).toMatchObject({ verified: "sha256", files: [{ sha256: sha256(png("cat")) }] });
  expect(await readFile(join(harness.dir, "images/cat.png"))).toEqual(png("cat"));
});

it("an image keeps its place when the one before it is not in the ZIP", async () => {
  const harness = await createRunHarness({
    tamper: (files) => files.filter((file) => file.name !== "images/cat.png"),
  });
  await harness.submit(ONE, { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  const outcome = await harness.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("1")), sha256(png("2"))]);
  expect(harness.fake.count(CONTENT)).toBe(1);
});

const manifestOf = (rows: readonly object[]) => Buffer.from(JSON.stringify({ files: rows }));

/** The fake's ZIP with another manifest. */
const claiming = (rows: (files: readonly ZippedFile[]) => readonly object[]) => (files: ZippedFile[]) =>
  files.map((file) => (file.name === "manifest.json" ? { ...file, data: manifestOf(rows(files)) } : file));

it("an entry that a manifest names 300 times is one image of the one that was announced", async () => {
  const row = { custom_id: "cat", filename: "images/cat.png" };
  const harness = await createRunHarness({ tamper: claiming(() => Array(300).fill(row)) });
  const outcome = await harness.submit(ONE);
  expect(outcome.lines.map((line) => line.files.length)).toEqual([1]);
  expect(await readdir(harness.path("images"))).toEqual(["cat.png"]);
});

it("an entry that a manifest gives to two items is taken for neither, and both come by themselves", async () => {
  const rows = CATS.map(({ custom_id }) => ({ custom_id, filename: "images/cat.png" }));
  const harness = await createRunHarness({ tamper: claiming(() => rows) });
  const outcome = await harness.submit(CATS);
  expect(outcome.lines.map((line) => line.files[0]?.sha256)).toEqual([
    sha256(png("Cat")),
    sha256(png("cat")),
  ]);
  expect(harness.fake.count(CONTENT)).toBe(2);
});

it("an entry larger than its manifest tells is given up where it goes beyond", async () => {
  const pieces = [Buffer.alloc(10), Buffer.alloc(10), Buffer.alloc(10)];
  let taken = 0;
  const expected = { sha256: null, bytes: 15, crc32: null };
  const inspecting = inspect(pieces, expected, "cat", async () => void taken++);
  await expect(inspecting).rejects.toMatchObject({ code: "VERIFY_FAILED" });
  expect(taken).toBe(1);
});

it("a manifest that names one image again and again takes no longer for it", async () => {
  const dir = await tempDir();
  const path = join(dir, "batch.zip");
  const rows = Array.from({ length: 150_000 }, () => ({ custom_id: "cat", filename: "cat.png" }));
  await writeFile(path, await packZip([{ name: "manifest.json", data: manifestOf(rows) }]));
  const cat = readItem({ custom_id: "cat", status: "success", image_count: 100 });
  const { stated } = await takeImages(path, cat === null ? [] : [cat], async () => null);
  expect(stated.get("cat")).toHaveLength(100);
});

it("a manifest that is larger than its images warrant is not read", async () => {
  const rows = Array.from({ length: 40_000 }, () => ({ custom_id: "cat", filename: "other.png" }));
  const weight = { name: "weight", data: randomBytes(100_000) };
  const tamper = (files: ZippedFile[]) => [
    ...claiming(() => rows)(files).map((file) => ({ ...file, compress: true })),
    weight,
  ];
  const harness = await createRunHarness({ tamper });
  const outcome = await harness.submit(ONE);
  expect(outcome.lines[0]).toMatchObject({ verified: "crc32", files: [{ path: "images/cat.png" }] });
});

it("a manifest that does not unpack is a damaged ZIP, and the images come singly", async () => {
  const harness = await createRunHarness({
    tamper: (files) => files.map((file) => ({ ...file, compress: file.name === "manifest.json" })),
  });
  harness.fake.fault(/\/download/, {
    lie: (answer) => {
      const body = Buffer.from(answer.body);
      const at = body.indexOf("manifest.json") + "manifest.json".length;
      body.fill(0xff, at, at + 20);
      return { ...answer, body };
    },
  });
  const outcome = await harness.submit(ONE);
  expect(outcome.lines[0]?.files.map((file) => file.sha256)).toEqual([sha256(png("cat"))]);
  expect(harness.fake.count(CONTENT)).toBe(1);
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
    async ({ entry }) => {
      taken++;
      stop.abort(reason);
      for await (const _ of await entry.read());
    },
    stop.signal,
  );
  await expect(taking).rejects.toBe(reason);
  expect(taken).toBe(1);
});

const ONE_CAT = [{ custom_id: "cat", prompt: "a cat" }];
const SYMLINK = 0o120777;

const hostile: [string, (files: ZippedFile[]) => ZippedFile[]][] = [
  ["a name that climbs out", (files) => [...files, { name: "images/../../evil.png", data: png("evil") }]],
  ["an absolute name", (files) => [...files, { name: "/tmp/evil.png", data: png("evil") }]],
  ["a backslash name", (files) => [...files, { name: "..\\evil.png", data: png("evil") }]],
  ["a drive letter", (files) => [...files, { name: "C:/evil.png", data: png("evil") }]],
  ["a control character", (files) => [...files, { name: "images/e\u001b[2Jvil.png", data: png("evil") }]],
  [
    "a symbolic link",
    (files) => [...files, { name: "images/link", data: Buffer.from("/etc"), mode: SYMLINK }],
  ],
  ["the same name twice", (files) => [...files, { name: "images/cat.png", data: png("evil") }]],
  ["a bomb", (files) => [...files, { name: "bomb", data: Buffer.alloc(5_000_000), compress: true }]],
];

for (const [what, tamper] of hostile) {
  it(`a ZIP with ${what} is refused as a whole, nothing of it is unpacked, and the images come singly`, async () => {
    const harness = await createRunHarness({ tamper });
    const outcome = await harness.submit(ONE_CAT);
    expect(harness.fake.count(/cat\/content/)).toBe(1);
    expect(outcome.lines[0]).toMatchObject({ files: [{ path: "images/cat.png" }], verified: "sha256" });
    expect(await readFile(harness.path("images/cat.png"))).toEqual(png("cat"));
    expect(await readdir(harness.path("images"))).toEqual(["cat.png"]);
    expect(await readdir(harness.root)).toEqual(expect.arrayContaining(["out", "prompts.jsonl"]));
    expect(await readdir(harness.root)).toHaveLength(2);
  });
}

it("entries that share their bytes cannot unpack to more than the file warrants", async () => {
  const dir = await tempDir();
  const data = Buffer.alloc(900_000);
  const bytes = await packZip(Array.from({ length: 8 }, (_, i) => ({ name: `b${i}`, data, compress: true })));
  await writeFile(join(dir, "bomb.zip"), bytes);
  await expect(openZip(join(dir, "bomb.zip"))).rejects.toThrow("it holds too much");
});

it("bytes that are no image are refused even when their hash is right", async () => {
  const harness = await createRunHarness();
  await harness.submit(ONE_CAT, { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? [])
    item.images = [Buffer.from("<html>no image</html>")];
  const { lines } = await harness.submit(ONE_CAT);
  expect(lines[0]).toMatchObject({ files: [], error: { code: "VERIFY_FAILED" } });
  expect(lines[0]?.error?.message).toContain("not a PNG, JPEG or WebP image");
  expect(await readdir(harness.path("images"))).toEqual([]);
});

it("whatever bytes a ZIP is made of, reading it ends in entries or in one kind of error", async () => {
  const dir = await tempDir();
  const good = await packZip([
    { name: "images/a.png", data: png("a") },
    { name: "manifest.json", data: Buffer.from("{}") },
  ]);
  let run = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { maxLength: 6 }),
      fc.nat(40),
      async (edits, cut) => {
        const bytes = Buffer.from(good);
        for (const [at, value] of edits) bytes[at] = value;
        const path = join(dir, `${run++}.zip`);
        await writeFile(path, bytes.subarray(0, bytes.length - cut));
        try {
          const zip = await openZip(path);
          for (const { name } of zip.entries) expect(name).not.toMatch(/\.\.|^\/|\\/);
          zip.close();
        } catch (error) {
          expect(error).toMatchObject({ code: "VERIFY_FAILED" });
        }
      },
    ),
    { numRuns: fuzzRuns(150) },
  );
});
