import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import type { ReaderRules } from "../../../src/prompts/prompt-reader.ts";
import { assignIds } from "../../../src/runs/plan/plan.ts";
import { type PromptItem, readPromptFiles } from "../../../src/runs/plan/prompt-files.ts";
import { textOf } from "../../../src/runs/plan/spool.ts";
import { readImages, readVariable } from "../../../src/runs/plan/variable-lists.ts";
import { tempDir } from "../../support/temp-dir.ts";

interface Read {
  items: PromptItem[];
  notes: string[];
}

/** Reads prompt files, which are written into the directory of a prompt file. */
async function read(
  files: Record<string, string>,
  rules: Partial<ReaderRules> = {},
  cwd?: string,
): Promise<Read> {
  const dir = cwd ?? (await tempDir());
  for (const [name, data] of Object.entries(files)) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), data);
  }
  const names = Object.keys(files).filter((name) => /^p\./.test(name));
  const notes: string[] = [];
  const stdin = async function* () {};
  const sources = names.map((name) => ({ name, cwd: dir, stdin }));
  const note = (remark: string) => notes.push(remark);
  const items = await readPromptFiles(sources, { limits: DEFAULT_LIMITS, defaultCount: 1, note, ...rules });
  return { items, notes };
}

async function problems(...call: Parameters<typeof read>): Promise<readonly string[]> {
  const error = await read(...call).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toMatchObject({ code: "INVALID_INPUT" });
  return error.details;
}

const idsOf = (items: readonly PromptItem[]) => assignIds(items).map(({ customId }) => customId);
const promptsOf = (items: readonly PromptItem[]) => items.map(({ prompt }) => textOf(prompt));
const line = (fields: object) => JSON.stringify(fields);

it("lists make their product in the order of the file, the last one fastest, and name the images", async () => {
  const vars = { animal: ["fox", "snowy owl"], season: "@lists/seasons.txt", place: "the wood" };
  const prompt = "a {{animal}} in {{ season }} at {{place}}, {{animal}}";
  const { items, notes } = await read({
    "p.jsonl": [line({ prompt, custom_id: "poster", vars }), line({ prompt: "a boat" })].join("\n"),
    "lists/seasons.txt": "\ufeffwinter\r\n\n  spring  \n",
  });
  expect(promptsOf(items)).toEqual([
    "a fox in winter at the wood, fox",
    "a fox in spring at the wood, fox",
    "a snowy owl in winter at the wood, snowy owl",
    "a snowy owl in spring at the wood, snowy owl",
    "a boat",
  ]);
  expect(idsOf(items)).toEqual([
    "poster-fox-winter",
    "poster-fox-spring",
    "poster-snowy-owl-winter",
    "poster-snowy-owl-spring",
    "item_000002",
  ]);
  expect(items[3]?.variant?.values).toEqual({ animal: "snowy owl", season: "spring" });
  expect(notes).toEqual(["2 lines with their variables make 5 images"]);
});

it("values that make a text far too long are reported with it, before any text is made", async () => {
  const vars = { a: ["x".repeat(1_000_000), "y"], b: Array.from({ length: 300 }, (_, i) => i) };
  const text = [
    line({ prompt: "{{a}}".repeat(3000), vars: { a: vars.a } }),
    line({ prompt: "{{a}} {{b}}", vars }),
  ];
  expect(await problems({ "p.jsonl": text.join("\n") })).toEqual([
    "p.jsonl:1: prompt: has up to 3000000000 characters with its values; at most 100000 are possible",
    "p.jsonl:2: prompt: has up to 1000004 characters with its values; at most 100000 are possible",
  ]);
});

it("tens of thousands of ids that are cut to the same one get their numbers at once", async () => {
  const item = (outputCount: number) =>
    ({ customId: null, variant: { stem: "s", values: {} }, outputCount }) as unknown as PromptItem;
  const items = [item(1), item(1), item(2), ...Array.from({ length: 100_000 }, () => item(1))];
  const begin = performance.now();
  const ids = idsOf(items);
  expect(performance.now() - begin).toBeLessThan(5000);
  expect([...ids.slice(0, 4), ids.at(-1)]).toEqual(["s", "s-2", "s", "s-3", "s-100002"]);
});

it("variables of all lines, and the number of images, are told as a product", async () => {
  const rules = { variables: [await readVariable("season=winter\\, late,spring", "/")], defaultCount: 2 };
  const lines = ["cat", "dog", "owl"].map((animal) => line({ prompt: `a ${animal} in {{season}}` }));
  const { items, notes } = await read({ "p.jsonl": lines.join("\n") }, rules);
  expect(notes).toEqual(["3 lines × 2 × 2 = 12 images"]);
  expect(promptsOf(items).slice(0, 2)).toEqual(["a cat in winter, late", "a cat in spring"]);
  expect(idsOf(items).slice(0, 2)).toEqual(["1-winter,-late", "1-spring"]);
});

it("a variable with the name of a field sets the field, and the line goes before the variables of all lines", async () => {
  const variables = [await readVariable("output_count=2,3", "/")];
  const text = [
    line({ prompt: "a {{x}}", vars: { x: "@@home", size: ["1k", "2K"] } }),
    line({ prompt: "b", output_count: 1 }),
  ];
  const { items } = await read({ "p.jsonl": text.join("\n") }, { variables });
  expect(items.map(({ size, outputCount }) => [size, outputCount])).toEqual([
    ["1K", 2],
    ["1K", 3],
    ["2K", 2],
    ["2K", 3],
    [undefined, 1],
  ]);
  expect(textOf(items[0]?.prompt ?? "")).toBe("a @home");
  expect(await problems({ "p.jsonl": line({ prompt: "a", size: "1K", vars: { size: ["2K"] } }) })).toEqual([
    "p.jsonl:1: vars.size: the line has the field size, too; keep one of them",
  ]);
});

it("columns are variables of the prompt column, of the prompt for all lines, and of another column with prompts", async () => {
  const csv = { "p.csv": 'title,price\n"Red, {{price}}",10\nHat,20\n' };
  const all = await read(csv, { template: "a poster of {{title}}", isStrict: false });
  expect(promptsOf(all.items)).toEqual(["a poster of Red, {{price}}", "a poster of Hat"]);
  expect(idsOf(all.items)).toEqual(["item_000001", "item_000002"]);
  expect(all.items.map(({ metadata }) => JSON.parse(textOf(metadata ?? "")))).toEqual([
    { title: "Red, {{price}}", price: "10" },
    { title: "Hat", price: "20" },
  ]);
  expect(promptsOf((await read(csv, { promptColumn: "title" })).items)).toEqual(["Red, 10", "Hat"]);
  const own = await read({ "p.txt": "a cat\n" }, { template: "{{prompt}}, in ink" });
  expect(promptsOf(own.items)).toEqual(["a cat, in ink"]);
  expect(await problems(csv, { promptColumn: "titel" })).toEqual([
    'p.csv:1: there is no column "titel"; did you mean title? The first row names title, price',
  ]);
  const strict = await read({ "p.csv": "prompt,title\na {{title}},cat\n" }, { isStrict: true });
  expect(promptsOf(strict.items)).toEqual(["a cat"]);
});

it("a name without a variable stays text with a note; strict reading refuses it", async () => {
  const text = [
    line({ prompt: "a {{anmal}} {{x}}", vars: { animal: "fox", x: "y" } }),
    line({ prompt: "{{other}}" }),
  ];
  const file = { "p.jsonl": text.join("\n") };
  expect(await problems(file)).toEqual([
    "p.jsonl:1: vars.animal: is not used; write {{animal}} in the prompt, or remove it",
  ]);
  const used = { "p.jsonl": line({ prompt: "{{animal}} and {{user}}", vars: { animal: "fox" } }) };
  expect((await read(used)).notes).toEqual(["{{user}} has no variable and stays text (p.jsonl:1)"]);
  expect(await problems(used, { isStrict: true })).toEqual([
    "p.jsonl:1: {{user}} has no variable; give it one in vars or with --var",
  ]);
});

it("wrong variables are one problem each, with the line and what would be right", async () => {
  const wrong: [object | string, string][] = [
    ["fox", 'vars: must be an object, such as {"animal": ["fox", "owl"]}'],
    [{ a: [] }, "vars.a: is an empty list; give it a value"],
    [{ a: [["x"]] }, "vars.a: must be a list of texts and numbers"],
    [{ a: true }, "vars.a: must be a text, a number, a list of these, or @FILE"],
    [{ a: "@gone.txt" }, "vars.a: gone.txt does not exist beside the prompt file"],
    [{ a: "@empty.txt" }, "vars.a: empty.txt holds no values; write one a line"],
    [{ a: "@." }, "vars.a: . is outside of the directory of the prompt file; copy it there"],
  ];
  const text = wrong.map(([vars]) => line({ prompt: "{{a}}", vars })).join("\n");
  expect(await problems({ "p.jsonl": text, "empty.txt": "\n \n" })).toEqual(
    wrong.map(([, problem], i) => `p.jsonl:${i + 1}: ${problem}`),
  );
  const idle = { variables: [await readVariable("season=winter", "/")] };
  expect(await problems({ "p.jsonl": line({ prompt: "a cat" }) }, idle)).toEqual([
    "--var: season: no line uses it; write {{season}} in a prompt, or leave it out",
  ]);
});

it("a problem that all variants of a line share is told once", async () => {
  const text = line({ prompt: "a {{x}}", output_count: 99, vars: { x: ["b", "c", "d"] } });
  expect(await problems({ "p.jsonl": text })).toEqual([
    "p.jsonl:1: output_count: must be a whole number from 1 to 4, not 99",
  ]);
});

it("[VAR-2] the list of a stranger's prompt file is read only below its own directory, also behind links", async () => {
  const dir = await tempDir();
  const inner = join(dir, "inner");
  await mkdir(inner);
  await writeFile(join(dir, "secret.txt"), "SECRET\n");
  await symlink(join(dir, "secret.txt"), join(inner, "link.txt"));
  const outside = "is outside of the directory of the prompt file; copy it there";
  for (const path of ["link.txt", "../secret.txt", join(dir, "secret.txt")]) {
    const file = { "p.jsonl": line({ prompt: "{{a}}", vars: { a: `@${path}` } }) };
    expect(await problems(file, {}, inner)).toEqual([`p.jsonl:1: vars.a: ${path} ${outside}`]);
  }
  await writeFile(join(inner, "big.txt"), Buffer.alloc(1024 * 1024 + 1, "a\n"));
  expect(
    await problems({ "p.jsonl": line({ prompt: "{{a}}", vars: { a: "@big.txt" } }) }, {}, inner),
  ).toEqual(["p.jsonl:1: vars.a: big.txt has 1048577 bytes; a list has at most 1048576"]);
  expect((await readVariable("a=@secret.txt", dir)).values).toEqual([{ text: "SECRET" }]);
});

it("a list of output counts is its sum in the product of images", async () => {
  const text = line({ prompt: "a {{x}}", vars: { x: ["fox", "owl"], output_count: [2, 3] } });
  const { items, notes } = await read({ "p.jsonl": text });
  expect(notes).toEqual(["1 line × 2 × 5 = 10 images"]);
  expect(items.reduce((sum, { outputCount }) => sum + outputCount, 0)).toBe(10);
});

it("a value of --var may end with a backslash before a comma", async () => {
  const read = async (text: string) => (await readVariable(`x=${text}`, "/")).values.map((each) => each.text);
  expect(await read("a\\\\,b")).toEqual(["a\\", "b"]);
  expect(await read("a\\,b,c:\\d")).toEqual(["a,b", "c:\\d"]);
});

it("a run with too many images is refused with the product, before it is expanded", async () => {
  const many = Array.from({ length: 1000 }, (_, i) => i);
  const text = [
    line({ prompt: "{{a}}", vars: { a: ["x", "y"] } }),
    line({ prompt: "{{a}} {{b}} {{c}}", vars: { a: many, b: many, c: many } }),
    line({ prompt: "{{a}}", vars: { a: many } }),
  ].join("\n");
  expect(await problems({ "p.jsonl": text })).toEqual([
    "p.jsonl:2: makes 1000 × 1000 × 1000 = 1000000000 images, after 2 images of the lines before; a run has at most 100000: shorten a list, or use several runs",
  ]);
});

it("ids of variants are safe as file names, short, and never those of other images", async () => {
  const vars = { a: ["x/../y", "x/../y", "l".repeat(90)], b: ["m".repeat(90)] };
  const text = [
    line({ prompt: "{{a}}{{b}}", custom_id: "p", vars }),
    line({ prompt: "x", custom_id: "q-1" }),
    line({ prompt: "{{n}}", custom_id: "q", vars: { n: [1] } }),
    line({ prompt: "x", custom_id: "set-{{n}}", vars: { n: ["one", "two"] } }),
  ];
  const { items } = await read({ "p.jsonl": text.join("\n") });
  const ids = idsOf(items);
  const m = "m".repeat(40);
  expect(ids).toEqual([
    `p-x___y-${m}`,
    `p-x___y-${m}-2`,
    `p-${"l".repeat(40)}-${m}`,
    "q-1",
    "q-1-2",
    "set-one",
    "set-two",
  ]);
});

it("--images makes each file the first reference of every prompt, in the order of their names", async () => {
  const dir = await tempDir();
  const png = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "base64",
  );
  for (const name of ["b.png", "a.PNG", "other.txt"]) await writeFile(join(dir, name), png);
  const variables = [await readImages("*.png", dir)];
  const { items } = await read({ "p.txt": "in oil\n" }, { variables }, dir);
  expect(idsOf(items)).toEqual(["1-a", "1-b"]);
  expect(items.map(({ references }) => references.map(({ source }) => source))).toEqual([
    [{ path: join(dir, "a.PNG") }],
    [{ path: join(dir, "b.png") }],
  ]);
  await expect(readImages("*.webp", dir)).rejects.toThrow("--images *.webp: none of the");
  await expect(readImages("none/*.png", dir)).rejects.toThrow("there is no such directory");
});
