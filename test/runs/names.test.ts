import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { expect, it } from "vitest";
import { safeFileName } from "../../src/kernel/text.ts";
import { createDiskNames, imageStem } from "../../src/runs/directory/names.ts";
import { type ResultLine, resultSchema } from "../../src/runs/directory/results.ts";
import { createCli } from "../support/cli.ts";
import { type FakeOptions, png, type ZippedFile } from "../support/fake-service.ts";
import { createRunHarness } from "../support/run-harness.ts";

const TWO = [
  { custom_id: "cat", prompt: "a" },
  { custom_id: "dog:1", prompt: "b" },
];
/** The beginning of a JPEG, with a frame of 3 by 4. */
const JPEG = Buffer.from("ffd8ffc0001108000400030301110002110103110100ffd9", "hex");

/** A ZIP in which nothing is called as its item, and a manifest that tells whose it is. */
function renamed(files: ZippedFile[]): ZippedFile[] {
  return files.map((file, index) => {
    if (file.name !== "manifest.json") return { ...file, name: `out/${index}.bin` };
    const manifest = JSON.parse(file.data.toString());
    for (const [at, entry] of manifest.files.entries()) entry.filename = `out/${at}.bin`;
    return { ...file, data: Buffer.from(JSON.stringify(manifest)) };
  });
}

it("images are named by their ids and real types, whatever a ZIP calls them, in every batch of a run", async () => {
  const harness = await createRunHarness({ tamper: renamed });
  const limits = { itemsPerBatch: 1 };
  await harness.submit(TWO, { limits, onlyStart: true });
  for (const item of harness.fake.batches[1]?.items ?? []) item.images = [JPEG, png("second")];
  const outcome = await harness.submit(TWO, { limits });
  expect(outcome.lines.map((line) => line.files.map((file) => file.path))).toEqual([
    ["images/cat.png"],
    ["images/dog_1.jpg", "images/dog_1_2.png"],
  ]);
  expect(harness.fake.count(/content/)).toBe(0);
});

it("one image has one path, and no two have the same, whatever their ids", () => {
  const image = fc.tuple(fc.string({ unit: "grapheme", minLength: 1 }), fc.nat(3));
  fc.assert(
    fc.property(fc.uniqueArray(image, { selector: String, maxLength: 20 }), (images) => {
      const names = createDiskNames();
      const take = () => images.map(([id, index]) => names.takeImage(id, index, "image/png"));
      const paths = take();
      for (const path of paths) expect(path).toMatch(/^images\/(?!\.)[^/]+\.png$/s);
      expect(new Set(paths.map((path) => path.normalize("NFC").toLowerCase())).size).toBe(paths.length);
      expect(take()).toEqual(paths);
    }),
    {
      examples: [
        [
          [
            [".", 0],
            ["..", 0],
            ["_", 0],
            ["..", 1],
          ],
        ],
      ],
    },
  );
});

const checks: [string, FakeOptions, ResultLine["verified"]][] = [
  ["a service that tells hashes", {}, "sha256"],
  ["a ZIP without hashes", { foreign: true }, "crc32"],
  ["single images without hashes", { foreign: true, tamper: () => [] }, null],
];
it.each(checks)("the results say which check was possible: %s", async (_, options, verified) => {
  const harness = await createRunHarness(options);
  const { lines } = await harness.submit(TWO);
  expect(lines.map((line) => line.verified)).toEqual([verified, verified]);
  for (const line of await harness.results()) expect(resultSchema.parse(line)).toEqual(line);
});

it("a file that is had again is not called better checked than before", async () => {
  const harness = await createRunHarness({ foreign: true });
  await harness.submit(TWO);
  await writeFile(harness.path("images/cat.png"), "damaged");
  expect((await harness.submit(TWO)).lines[0]?.verified).toBe("crc32");
});

it("as many images as there are may have one name: each finds its own without trying all before", () => {
  const names = createDiskNames();
  const count = 20_000;
  const paths = new Set(
    Array.from({ length: count }, (_, i) =>
      names.takeImage(`a${":*?|"[i % 4]}`.padEnd(i % 7), i, "image/png"),
    ),
  );
  expect(paths.size).toBe(count);
  const same = new Set(Array.from({ length: count }, () => names.take("same.png")));
  expect(same.size).toBe(count);
});

it("a device of Windows is never the name of a file, with whatever extension", () => {
  const names = createDiskNames();
  const devices = ["CON", "conin$", "CONOUT$", "nul.v2", "lpt\u00b9"];
  for (const device of devices) {
    expect(names.takeImage(device, 0, "image/png")).toMatch(/^images\/_/);
    expect(safeFileName(device)).toMatch(/^_/);
  }
  expect(names.takeImage("console", 0, "image/png")).toBe("images/console.png");
});

it("[NAMES-1] the words of a prompt follow the id in plain letters, whole words at most 55 characters together", () => {
  const name = (prompt: string, id = "item_000001") => imageStem(id, "words", { prompt });
  expect(name("A red fox")).toBe("item_000001-red-fox");
  expect(name("Ein Fuchs über Köln, 50 % naß!")).toBe("item_000001-ein-fuchs-uber-koln-50-nass");
  expect(name("赤い狐")).toBe("item_000001");
  expect(name(`the ${"very ".repeat(30)}end`)).toBe("item_000001-very-very-very-very-very-very-very-very");
  expect(name("supercalifragilisticexpialidocious".repeat(3))).toBe("item_000001");
  expect(name("a fox", "x".repeat(60))).toBe("x".repeat(60));
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 200 }), (prompt) => {
      expect(name(prompt)).toMatch(/^item_000001(-[a-z0-9]+)*$/);
      expect(`${name(prompt)}.png`.length).toBeLessThanOrEqual(60);
    }),
  );
});

it("[NAMES-1] words come by themselves only where the prompt has no id of its own", () => {
  const asked = { prompt: "red fox", source: { id: "fox" } };
  expect(imageStem("fox", "auto", asked)).toBe("fox");
  expect(imageStem("fox", "words", asked)).toBe("fox-red-fox");
  expect(imageStem("item_000001", "auto", { prompt: "red fox", source: {} })).toBe("item_000001-red-fox");
  expect(imageStem("item_000001", "id", { prompt: "red fox", source: {} })).toBe("item_000001");
  expect(imageStem("item_000001", "auto", undefined)).toBe("item_000001");
});

it("the files of a text file have words, a run keeps its names, and one of an older version too", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "pets.txt"), "a red fox\nan owl\n");
  const files = async (dir = "pets-images") => (await readdir(join(cli.cwd, dir, "images"))).sort();
  expect((await cli.here(["submit", "pets.txt"])).code).toBe(0);
  const named = ["item_000001-red-fox.png", "item_000002-owl.png"];
  expect(await files()).toEqual(named);
  expect((await cli.here(["submit", "pets.txt", "--names", "id"])).stderr).toContain("nothing to fetch");
  expect(await files()).toEqual(named);
  await cli.here(["submit", "pets.txt", "--names", "id", "-o", "plain"]);
  expect(await files("plain")).toEqual(["item_000001.png", "item_000002.png"]);
  const state = join(cli.cwd, "plain", "imgbatch.json");
  const { names, ...older } = JSON.parse(await readFile(state, "utf8"));
  expect(names).toBe("id");
  await writeFile(state, JSON.stringify(older));
  await writeFile(join(cli.cwd, "plain", "images", "item_000001.png"), "damaged");
  expect((await cli.here(["submit", "pets.txt", "-o", "plain"])).code).toBe(0);
  expect(await files("plain")).toEqual(["item_000001.png", "item_000002.png"]);
});

it("a run without a name is called as its first file, one that had none keeps none", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "spring pets.txt"), "a red fox\n");
  await cli.here(["submit", "spring pets.txt", "-o", "out"]);
  await cli.here(["submit", "-", "-o", "stdin"], { stdin: '{"prompt":"x"}' });
  expect(cli.fake.batches.map(({ request }) => JSON.parse(request).task_name)).toEqual([
    "spring pets",
    undefined,
  ]);
  await writeFile(join(cli.cwd, "x.jsonl"), '{"prompt":"x"}');
  expect((await cli.here(["submit", "x.jsonl", "-o", "stdin"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(2);
});
