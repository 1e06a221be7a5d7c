import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import { createInProcessCli } from "../support/cli-in-process.ts";
import { bytes, type Damage, inside } from "../support/damage.ts";
import { type FakeBatch, png } from "../support/fake-service.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";

const PROMPTS = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog that fails", reference_images: ["ref.png"] },
  { custom_id: "fox", prompt: "foxes that fail", output_count: 2 },
];

const FILES = ["imgbatch.json", "input.jsonl", "results.jsonl", "retry.jsonl"];
const damages = fc
  .constantFrom(...FILES)
  .chain((file) => fc.tuple(fc.constant(file), fc.oneof(inside(file !== "imgbatch.json"), bytes), fc.nat()));

/** Every command that reads the directory of a run. */
const COMMANDS = [
  ["status", "run"],
  ["wait", "run"],
  ["watch", "run"],
  ["items", "run", "--all"],
  ["download", "run"],
  ["download", "run", "--item", "cat", "--output", "cat.png", "--force"],
  ["download", "run", "--zip", "--force"],
  ["cancel", "run"],
  ["retry", "run", "--dry-run"],
  ["retry", "run"],
  ["delete", "run", "--outputs"],
  ["submit", "p.jsonl", "--output", "run"],
  ["submit", "p.jsonl", "--output", "run", "--dry-run"],
  ["submit", "run/retry.jsonl", "--output", "other"],
];

async function ended(): Promise<{ cli: Cli; restore: () => void }> {
  const cli = await createCli({ failing: /fail/ });
  const path = (name: string) => join(cli.cwd, name);
  writeFileSync(path("ref.png"), png("ref"));
  writeFileSync(path("p.jsonl"), PROMPTS.map((line) => JSON.stringify(line)).join("\n"));
  const { code, stderr } = await cli.here(["submit", "p.jsonl", "--output", "run"]);
  expect({ code, stderr }).toMatchObject({ code: 4 });
  cpSync(path("run"), path("whole"), { recursive: true });
  const copy = (batches: readonly FakeBatch[]): FakeBatch[] =>
    batches.map((batch) => ({
      ...batch,
      wire: { ...batch.wire },
      items: batch.items.map((item) => ({ ...item })),
      statuses: [...batch.statuses],
    }));
  const batches = copy(cli.fake.batches);
  const restore = () => {
    for (const name of ["run", "other"]) rmSync(path(name), { recursive: true, force: true });
    cpSync(path("whole"), path("run"), { recursive: true });
    cli.fake.batches.splice(0, Number.POSITIVE_INFINITY, ...copy(batches));
  };
  return { cli, restore };
}

/** Never an error of its own, never what is not about the damage; and what cannot be used is named. */
function expectNamed({ code, stderr }: { code: number | null; stderr: string }, file: string): void {
  expect(code, stderr).not.toBe(1);
  expect(stderr).not.toMatch(/inside imgbatch|Could not save|(?<!received )undefined|\[object/);
  if (code === 6) expect(stderr).toMatch(file === "imgbatch.json" ? /imgbatch\.json|belongs to/ : `${file}:`);
  if (code === 2) expect(stderr).toMatch(/retry\.jsonl:[\d ]|no batch|does not know|was made by/);
}

it("whatever befell a file of a run, every command that reads it goes on, or names the file", async () => {
  const { cli, restore } = await ended();
  await fc.assert(
    fc.asyncProperty(damages, fc.constantFrom(...COMMANDS), async ([file, damage], command) => {
      restore();
      const path = join(cli.cwd, "run", file);
      writeFileSync(path, damage(readFileSync(path, "utf8")));
      expectNamed(await cli.here(command), file);
    }),
    { numRuns: fuzzRuns(150) },
  );
}, 120_000);

const named: [string, string, string[], Damage, RegExp][] = [
  [
    "a run state of a later version",
    "imgbatch.json",
    ["status", "run"],
    (text) => text.replace('"schema_version": 1', '"schema_version": 2'),
    /imgbatch\.json is damaged or of another version of imgbatch \(schema_version/,
  ],
  [
    "a run state that is not UTF-8",
    "imgbatch.json",
    ["wait", "run"],
    (text) => Buffer.from(text.replace("cat", "c\u00e4t").replace("1", "\u00ff1"), "latin1"),
    /imgbatch\.json is damaged/,
  ],
  [
    "a run state without its batches",
    "imgbatch.json",
    ["download", "run"],
    (text) => JSON.stringify({ ...JSON.parse(text), batches: [] }),
    /imgbatch\.json .*lacks its batches/,
  ],
  [
    "the prompt of a failed image cut off",
    "input.jsonl",
    ["retry", "run"],
    (text) => text.slice(0, -30),
    /input\.jsonl:3 is not a line/,
  ],
  [
    "null in the place of a failed image",
    "input.jsonl",
    ["retry", "run"],
    (text) => text.replace(/^.*dog.*$/m, "null"),
    /input\.jsonl:2 is not a line/,
  ],
  [
    "another prompt in the place of that of a failed image",
    "input.jsonl",
    ["retry", "run"],
    (text) => text.replace("a dog that fails", "a wolf"),
    /input\.jsonl:2 is not a line/,
  ],
  [
    "a million million images of a prompt",
    "input.jsonl",
    ["retry", "run"],
    (text) => text.replace('"output_count":2', '"output_count":1000000000000'),
    /input\.jsonl:3 is not a line/,
  ],
];

it.each(named)("%s is exit 6, and the file is named", async (_, file, command, damage, message) => {
  const { cli, restore } = await ended();
  restore();
  const path = join(cli.cwd, "run", file);
  writeFileSync(path, damage(readFileSync(path, "utf8")));
  const batches = cli.fake.batches.length;
  const { code, stderr } = await cli.here(command);
  expect({ code, stderr }).toMatchObject({ code: 6, stderr: expect.stringMatching(message) });
  expect(cli.fake.batches).toHaveLength(batches);
  expect(readdirSync(join(cli.cwd, "run", "images"))).toEqual(["cat.png"]);
});

it.each([
  ["another image", (path: string) => writeFileSync(path, png("other"))],
  ["no image", (path: string) => writeFileSync(path, "x")],
  ["nothing", (path: string) => rmSync(path)],
  [
    "a directory",
    (path: string) => {
      rmSync(path);
      mkdirSync(path);
    },
  ],
])("%s in the place of a reference image is exit 6, and is not sent", async (_, damage) => {
  const { cli, restore } = await ended();
  restore();
  const folder = join(cli.cwd, "run", "references");
  damage(join(folder, readdirSync(folder)[0] ?? ""));
  const batches = cli.fake.batches.length;
  const { code, stderr } = await cli.here(["retry", "run"]);
  expect({ code, stderr }).toMatchObject({ code: 6, stderr: expect.stringMatching(/references\//) });
  expect(cli.fake.batches).toHaveLength(batches);
});

it("the submit command writes a damaged input anew, and a retry goes on with it", async () => {
  const { cli, restore } = await ended();
  restore();
  const path = join(cli.cwd, "run", "input.jsonl");
  const whole = readFileSync(path, "utf8");
  writeFileSync(path, `null\n${whole.slice(20)}`);
  expect((await cli.here(["submit", "p.jsonl", "--output", "run"])).code).toBe(4);
  expect(readFileSync(path, "utf8")).toBe(whole);
  expect((await cli.here(["retry", "run"])).code).toBe(4);
});

it("a file that the results give to an image that is in no batch stays", async () => {
  const { cli, restore } = await ended();
  restore();
  const path = (name: string) => join(cli.cwd, "run", name);
  writeFileSync(path("results.jsonl"), readFileSync(path("results.jsonl"), "utf8").replaceAll("cat", "cow"));
  cpSync(path("images/cat.png"), path("images/cow.png"));
  await cli.here(["download", "run"]);
  expect(readdirSync(path("images")).sort()).toEqual(["cat.png", "cow.png"]);
});

it("damaged files of a run of single requests are rebuilt or named, and no whole image is made anew", async () => {
  const cli = await createInProcessCli();
  const path = (name: string) => join(cli.cwd, name);
  writeFileSync(
    path("p.jsonl"),
    ["cat", "dog", "fox"].map((id) => JSON.stringify({ custom_id: id, prompt: id })).join("\n"),
  );
  const command = ["generate", "--file", "p.jsonl", "--output", "run"];
  expect((await cli.run(command)).code).toBe(0);
  cpSync(path("run"), path("whole"), { recursive: true });
  const files = fc
    .constantFrom("imgbatch.json", "input.jsonl", "results.jsonl")
    .chain((file) => fc.tuple(fc.constant(file), fc.oneof(inside(file !== "imgbatch.json"), bytes)));
  await fc.assert(
    fc.asyncProperty(files, async ([file, damage]) => {
      rmSync(path("run"), { recursive: true });
      cpSync(path("whole"), path("run"), { recursive: true });
      writeFileSync(path(`run/${file}`), damage(readFileSync(path(`run/${file}`), "utf8")));
      const result = await cli.run(command);
      expectNamed(result, file);
      expect(readdirSync(path("run/images")).sort()).toEqual(["cat.png", "dog.png", "fox.png"]);
    }),
    { numRuns: fuzzRuns(50) },
  );
}, 120_000);
