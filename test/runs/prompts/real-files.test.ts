import { createReadStream } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { PromptReader, type ReaderRules } from "../../../src/prompts/prompt-reader.ts";
import { type PromptItem, readPromptFiles } from "../../../src/runs/plan/prompt-files.ts";
import { textOf } from "../../../src/runs/plan/spool.ts";
import { readImages } from "../../../src/runs/plan/variable-lists.ts";
import { png } from "../../support/fake-service.ts";
import { tempDir } from "../../support/temp-dir.ts";

type Files = Record<string, string | Uint8Array>;

async function read(files: Files, rules: Partial<ReaderRules> = {}) {
  const cwd = await tempDir();
  for (const [name, data] of Object.entries(files)) await writeFile(join(cwd, name), data);
  const notes: string[] = [];
  const stdin = async function* () {};
  const names = Object.keys(files).filter((name) => name.startsWith("p."));
  const sources = names.map((name) => ({ name, cwd, stdin }));
  const note = (remark: string) => notes.push(remark);
  const items = await readPromptFiles(sources, { limits: DEFAULT_LIMITS, defaultCount: 1, note, ...rules });
  return { items, notes };
}

async function problems(files: Files, rules: Partial<ReaderRules> = {}): Promise<readonly string[]> {
  const error = await read(files, rules).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toMatchObject({ code: "INVALID_INPUT" });
  return error.details;
}

const promptsOf = (items: readonly PromptItem[]) => items.map(({ prompt }) => textOf(prompt));
const linesOf = (items: readonly PromptItem[]) => items.map(({ fileLine }) => fileLine.line);

it.each([
  ["cells without anything", "prompt,style\na fox,ink\n,\n"],
  ["blanks", "prompt,style\na fox,ink\n  , \t\n"],
  ["no-break spaces", "prompt,style\na fox,ink\n\u00a0,\u3000\n"],
  ["characters that no font draws", "prompt,style\na fox,ink\n\u200b,\u2060\ufeff\n"],
  ["quotes around nothing", 'prompt,style\na fox,ink\n"",""\n'],
  ["quotes around blanks", 'prompt,style\na fox,ink\n" "," "\n'],
  ["more cells than columns", "prompt,style\na fox,ink\n,,,,\n"],
])("a row of %s is skipped with a note, and the lines of the others stay", async (_, table) => {
  const { items, notes } = await read(
    { "p.csv": `${table}an owl,oil\n` },
    { template: "{{prompt}}, {{style}}" },
  );
  expect(promptsOf(items)).toEqual(["a fox, ink", "an owl, oil"]);
  expect(linesOf(items)).toEqual([2, 4]);
  expect(notes).toEqual(["p.csv: 1 row (line 3) of blank cells, skipped"]);
});

it("blank rows of a table with tabs and of a table with numbered rows are counted together", async () => {
  const tabs = await read({ "p.tsv": "prompt\tstyle\n\t\na fox\tink\n \t\n\t\u00a0\n\t\n" });
  expect(tabs.notes[0]).toBe("p.tsv: 4 rows (lines 2, 4, 5, …) of blank cells, skipped");
  const numbered = await read({ "p.csv": ",prompt,style\n0,a fox,ink\n1,,\n2,an owl,oil\n" });
  expect(promptsOf(numbered.items)).toEqual(["a fox", "an owl"]);
  expect(numbered.notes[0]).toBe("p.csv: 1 row (line 3) of blank cells, skipped");
});

it.each<[string, Files, Partial<ReaderRules>, string]>([
  [
    "a cell of a table",
    { "p.csv": "title,season\nSpring Fair,spring\nWinter Ball,\n" },
    { template: "{{title}} in {{season}}" },
    "p.csv:3: season: is empty, and {{season}} stands for it; fill it in, or remove the line",
  ],
  [
    "a cell of blanks",
    { "p.csv": "prompt,season\na fox in {{season}},spring\nan owl in {{season}},\u00a0\n" },
    {},
    "p.csv:3: season: is empty, and {{season}} stands for it; fill it in, or remove the line",
  ],
  [
    "a field of a JSON line",
    { "p.jsonl": '{"prompt":"a fox in {{season}}","season":" "}' },
    {},
    "p.jsonl:1: season: is empty, and {{season}} stands for it; fill it in, or remove the line",
  ],
  [
    "a field that is null",
    { "p.jsonl": '{"text":null}\n{"text":"a fox"}' },
    { template: "{{text}}" },
    "p.jsonl:1: text: is empty, and {{text}} stands for it; fill it in, or remove the line",
  ],
  [
    "a variable of the line",
    { "p.jsonl": '{"prompt":"a fox in {{season}}","vars":{"season":""}}' },
    {},
    "p.jsonl:1: vars.season: is empty, and {{season}} stands for it; fill it in, or remove the line",
  ],
  [
    "one value of a list",
    { "p.jsonl": '{"prompt":"a fox in {{season}}","vars":{"season":["winter",""]}}' },
    {},
    "p.jsonl:1: vars.season: is empty, and {{season}} stands for it; fill it in, or remove the line",
  ],
  [
    "the column of the prompts",
    { "p.csv": "text,note\na fox,x\n,y\n" },
    { promptColumn: "text" },
    "p.csv:3: prompt: is empty; say what the image shows",
  ],
  [
    "a prompt that nobody sees",
    { "p.txt": "a fox\n", "p.jsonl": '{"prompt":"\u200b"}' },
    {},
    "p.jsonl:1: prompt: is empty; say what the image shows",
  ],
])("%s that the prompt uses may not be empty", async (_, files, rules, problem) => {
  expect(await problems(files, rules)).toEqual([problem]);
});

it("an empty cell that nothing uses is no problem", async () => {
  const { items } = await read({
    "p.csv": "prompt,style,seed\na fox,,\n",
    "p.jsonl": '{"prompt":"an owl","style":"","note":null,"seed":null}',
  });
  expect(promptsOf(items)).toEqual(["a fox", "an owl"]);
});

it.each([
  ["a line that names the separator", "p.csv", "sep=;\r\nprompt;style\r\na fox, red;ink\r\n", "a fox, red"],
  ["the same in quotes", "p.csv", '"sep=|"\nprompt|style\na fox, red|ink\n', "a fox, red"],
  ["a tab as separator", "p.csv", "SEP=\t\nprompt\tstyle\na fox, red\tink\n", "a fox, red"],
  ["the same behind a byte order mark", "p.csv", "\ufeffsep=,\nprompt,style\na fox,ink\n", "a fox"],
  ["in a table with tabs", "p.tsv", "sep=;\nprompt;style\na fox;ink\n", "a fox"],
  ["a blank between comma and quote", "p.csv", 'style, prompt\nink, "a fox, red"\n', "a fox, red"],
  ["a tab between comma and quote", "p.csv", 'style,\t"prompt"\nink, \t "a fox, red" \n', "a fox, red"],
  ["empty cells at the end of a row", "p.csv", "prompt,style\na fox,ink,\n", "a fox"],
  ["many of them, with blanks", "p.csv", "prompt,style\na fox,ink,, ,\u00a0,\n", "a fox"],
  ["numbered rows", "p.csv", ",prompt,style\n0,a fox,ink\n", "a fox"],
  ["rows numbered from 1, in quotes", "p.csv", '"","prompt","style"\n"1","a fox","ink"\n', "a fox"],
  ["a carriage return at each end", "p.csv", "prompt,style\ra fox,ink\r", "a fox"],
  ["the same behind a byte order mark", "p.csv", "\ufeffprompt,style\ra fox,ink", "a fox"],
  ["the same and a last line feed", "p.csv", "prompt,style\ra fox,ink\r\n", "a fox"],
])("a table with %s is read", async (_, name, table, prompt) => {
  const { items } = await read({ [name]: table });
  expect(promptsOf(items)).toEqual([prompt]);
});

it("the numbers of rows are left out with a note, and other columns without a name are an error", async () => {
  const { items, notes } = await read({ "p.csv": ",prompt\n0,a fox\n1,an owl\n2,a cat\n" });
  expect(items.map(({ metadata }) => metadata)).toEqual([null, null, null]);
  expect(notes).toEqual(["p.csv: the first column has no name and only counts the rows: left out"]);
  for (const table of [
    ",prompt\n7,a fox\n8,an owl\n",
    ",prompt\n0,a fox\n2,an owl\n",
    ",prompt\nred,a fox\n",
    "prompt,\na fox,0\n",
  ])
    expect(await problems({ "p.csv": table })).toEqual([
      "p.csv:1: a column has cells but no name; name it or remove it",
    ]);
});

it.each([
  ["a prompt that begins with a quote", '"LATE" in red neon\twriting', ['"LATE" in red neon']],
  ["a quote that never closes", '"Home sweet home\tcross-stitch\na fox\tink', ['"Home sweet home', "a fox"]],
  [
    "inches that would close a quote of another row",
    '"Home sweet home\tcross-stitch\na fox\tink\na pane of 12"\tglass\nan owl\tink',
    ['"Home sweet home', "a fox", 'a pane of 12"', "an owl"],
  ],
  [
    "the same in the next row",
    '"Home sweet home\tcross-stitch\na pane of 12"\tglass',
    ['"Home sweet home', 'a pane of 12"'],
  ],
  ["a quoted cell", '"a fox, ""red"""\tink', ['a fox, "red"']],
  ["a quoted cell over two lines", '"a fox\nin snow"\tink', ["a fox\nin snow"]],
  ["one that is the last of its row", 'a fox\t"ink\nand gold"\nan owl\toil', ["a fox", "an owl"]],
  ["a quoted cell with a tab", '"a\tfox"\tink', ["a\tfox"]],
  ["doubled quotes at the beginning of text", '""LATE"" in neon\twriting', ['""LATE"" in neon']],
])("in a table with tabs, %s is what its writer meant", async (_, rows, prompts) => {
  const { items } = await read({ "p.tsv": `prompt\tnote\n${rows}\n` });
  expect(promptsOf(items)).toEqual(prompts);
});

it("curly quotes around cells are named", async () => {
  const curly =
    'the quotes around cells are curly (\u201c \u201d), which quote nothing: write straight ones (")';
  expect(await problems({ "p.csv": "prompt,style\n\u201ca fox, red\u201d,ink\n" })).toEqual([
    `p.csv:2: has 3 cells but the first row names 2; ${curly}`,
  ]);
  expect(await problems({ "p.csv": "\u201cprompt\u201d,\u201cstyle\u201d\na fox,ink\n" })).toEqual([
    `p.csv:1: the first row must name the columns, and one of them must be prompt; ${curly}`,
  ]);
});

it("a file without line feeds has a line at each carriage return", async () => {
  const three = ["a fox", "an owl", "a cat"];
  for (const text of ["a fox\ran owl\ra cat", "\ufeffa fox\ran owl\ra cat\r", "a fox\r\ran owl\ra cat\r\n"])
    expect(promptsOf((await read({ "p.txt": text })).items)).toEqual(three);
  const json = three.map((prompt) => JSON.stringify({ prompt })).join("\r");
  expect(promptsOf((await read({ "p.jsonl": json })).items)).toEqual(three);
  const list = {
    "p.jsonl": '{"prompt":"{{animal}}","vars":{"animal":"@animals.txt"}}',
    "animals.txt": three.join("\r"),
  };
  expect(promptsOf((await read(list)).items)).toEqual(three);
  expect(promptsOf((await read({ "p.txt": "a fox\r\n" })).items)).toEqual(["a fox"]);
});

it.each([
  ["16:09", "16:9"],
  ["04:03", "4:3"],
  ["16:09:00", "16:9"],
  ["16 : 9", "16:9"],
  ["16：9", "16:9"],
  ["１６：９", "16:9"],
  ["16/9", "16:9"],
  ["16x9", "16:9"],
  ["16 × 9", "16:9"],
  ["01:01", "1:1"],
])("the ratio %s of a spreadsheet is %s", async (typed, ratio) => {
  const { items } = await read({
    "p.csv": `prompt,aspect_ratio\na fox,${typed}\n`,
    "p.jsonl": JSON.stringify({ prompt: "an owl", aspect_ratio: typed }),
  });
  expect(items.map(({ aspect_ratio }) => aspect_ratio)).toEqual([ratio, ratio]);
});

it("whole numbers of a spreadsheet may have a point and zeros", async () => {
  const { items } = await read({
    "p.csv": 'prompt,seed,output_count\na fox,42.0,2.00\nan owl,"42,0",1\n',
    "p.jsonl": '{"prompt":"a {{n}}","vars":{"n":["x"],"seed":"7.0"}}',
  });
  expect(items.map(({ seed, outputCount }) => [seed, outputCount])).toEqual([
    [42, 2],
    [42, 1],
    [7, 1],
  ]);
  expect(await problems({ "p.csv": "prompt,output_count\na fox,1.5\n" })).toEqual([
    'p.csv:2: output_count: must be a whole number from 1 to 4, not "1.5"',
  ]);
});

it("in a list of values, a line that begins with # and a blank is a comment", async () => {
  const { items } = await read({
    "p.jsonl": '{"prompt":"{{colour}}","vars":{"colour":"@colours.txt"}}',
    "colours.txt": "# mine\n#\n#ff0000\n\u00a0\n#\tno value\nred # and gold\n",
  });
  expect(promptsOf(items)).toEqual(["#ff0000", "red # and gold"]);
});

it("in a .txt file, a line that begins with # and a blank is a comment: nothing is made of it, and a note says so", async () => {
  const text = "# Animals\n\na fox\n#hashtag\n## Birds\nan owl # at night\n#\n // a comic\n";
  const { items, notes } = await read({ "p.txt": text });
  expect(promptsOf(items)).toEqual(["a fox", "#hashtag", "an owl # at night", "// a comic"]);
  expect(notes).toEqual(["p.txt: 3 comments (lines 1, 5, 7) with # in front, skipped"]);
  expect(await problems({ "p.txt": "# a fox\n# an owl\n" })).toEqual([
    "p.txt: holds nothing but 2 comments (lines 1, 2); write prompts without # in front",
  ]);
});

it("fields of a JSON line stand for their names, as columns of a table do", async () => {
  const line = { text: "a fox", id: 7, tags: ["x"], prompt: "{{text}} no. {{id}}" };
  const { items } = await read({ "p.jsonl": JSON.stringify(line) });
  expect(promptsOf(items)).toEqual(["a fox no. 7"]);
  expect(await problems({ "p.jsonl": JSON.stringify({ ...line, prompt: "{{tags}}" }) })).toEqual([
    "p.jsonl:1: tags: is a list; {{tags}} stands for a text or a number",
  ]);
  const { items: made } = await read(
    { "p.jsonl": '{"text":"a red fox"}\n{"text":"an owl at night"}' },
    { template: "{{text}}, in ink" },
  );
  expect(promptsOf(made)).toEqual(["a red fox, in ink", "an owl at night, in ink"]);
});

it("a name in --prompt that no line has is one error, and a line that lacks it is an error of that line", async () => {
  const files = { "p.jsonl": '{"text":"a fox"}\n{"title":"an owl"}\n{"text":"a cat"}' };
  expect(await problems(files, { template: "{{text}}" })).toEqual([
    "p.jsonl:2: text: is missing, and --prompt has {{text}}; add it, or remove the line",
  ]);
  expect(await problems(files, { template: "a picture of {{caption}}" })).toEqual([
    "--prompt: {{caption}}: no line has it; there are text, title",
  ]);
  expect(await problems({ "p.csv": "title,price\nBook,5\n" }, { template: "{{titel}}" })).toEqual([
    "--prompt: {{titel}}: no line has it; did you mean {{title}}?",
  ]);
});

it("--prompt-column names a field of JSON lines too, and says which there are", async () => {
  const files = { "p.jsonl": '{"text":"a fox","id":1}\n{"text":"an owl","id":2}' };
  expect(promptsOf((await read(files, { promptColumn: "text" })).items)).toEqual(["a fox", "an owl"]);
  expect(await problems(files, { promptColumn: "nope" })).toEqual([
    'p.jsonl: no line has the field "nope"; the fields are text, id',
  ]);
  expect(await problems({ "p.jsonl": '{"text":"a fox"}\n{"id":2}' }, { promptColumn: "text" })).toEqual([
    "p.jsonl:2: text: is missing; say what the image shows, or remove the line",
  ]);
  expect(await problems({ "p.csv": "text,id\na fox,1\n" }, { promptColumn: "nope" })).toEqual([
    'p.csv:1: there is no column "nope"; the first row names text, id',
  ]);
  expect(await problems({ "p.txt": "a fox\n" }, { promptColumn: "text" })).toEqual([
    "--prompt-column: a .txt file has no columns; leave it out",
  ]);
});

it("a flag that changes nothing about any line is an error, and one that some line needs is none", async () => {
  const flags = {
    size: { flag: "--size", value: "1K" },
    output_count: { flag: "--count", value: 3 },
    model: { flag: "--model", value: "m" },
    reference_images: { flag: "--image", value: {} },
  };
  const own = '{"prompt":"a","size":"2K","output_count":2,"model":"x","reference_images":["a.png"]}\n';
  expect(await problems({ "p.jsonl": own, "a.png": png("a") }, { flags })).toEqual([
    "--size: every line has its own size, so it has no effect; leave it out",
    "--count: every line has its own output_count, so it has no effect; leave it out",
    "--model: every line has its own model, so it has no effect; leave it out",
    "--image: every line has its own reference_images, so it has no effect; leave it out",
  ]);
  for (const other of [
    '{"prompt":"b"}',
    '{"prompt":"b","size":"1k","output_count":3,"model":"m","reference_images":[]}',
  ])
    expect((await read({ "p.jsonl": own + other, "a.png": png("a") }, { flags })).items).toHaveLength(2);
  const table = { "p.csv": "prompt,size,model,output_count\na,2K,,\nb,,x,\n" };
  expect((await read(table, { flags })).items).toHaveLength(2);
  const varied = { "p.jsonl": '{"prompt":"a","vars":{"size":["2K","4K"]}}' };
  expect(await problems(varied, { flags: { size: flags.size } })).toEqual([
    "--size: every line has its own size, so it has no effect; leave it out",
  ]);
});

it("public sets of prompts are read as they are, or with the flag that the message names", async () => {
  const drawBench = 'Prompts,Category\nA red car.,Colors\n"A sign that says ""Diffusion"".",Text\n';
  const { items } = await read({ "p.csv": drawBench });
  expect(promptsOf(items)).toEqual(["A red car.", 'A sign that says "Diffusion".']);
  expect(promptsOf((await read({ "p.csv": drawBench }, { template: "{{Prompts}} at night" })).items)[0]).toBe(
    "A red car. at night",
  );
  expect(await problems({ "p.csv": "file_name,Caption\n1.png,a fox\n" })).toEqual([
    "p.csv:1: the first row must name the columns, and one of them must be prompt; if it is Caption: --prompt-column Caption",
  ]);
  expect(await problems({ "p.jsonl": '{"text":"a fox"}' })).toEqual([
    "p.jsonl:1: prompt: is missing; say what the image shows, or use --prompt-column text",
  ]);
  const geneval = {
    tag: "counting",
    include: [{ class: "clock", count: 2 }],
    prompt: "a photo of two clocks",
  };
  const [counting] = (await read({ "p.jsonl": JSON.stringify(geneval) })).items;
  expect(JSON.parse(String(counting?.metadata))).toEqual({ tag: "counting", include: geneval.include });
});

it("prompts that --prompt replaces are told, and lines of a .txt file are not dropped", async () => {
  const lines = { "p.jsonl": '{"prompt":"old","title":"x"}' };
  expect(await problems(lines, { template: "{{title}}", promptColumn: "title" })).toEqual([
    "--prompt-column: --prompt has no {{prompt}}, so it has no effect; leave one of them out",
  ]);
  expect((await read(lines, { template: "{{title}}" })).notes).toEqual([
    "--prompt has no {{prompt}}: it replaces 1 prompt of the lines",
  ]);
  expect(
    (await read(lines, { template: "{{prompt}} of {{title}}", promptColumn: "title" })).items,
  ).toHaveLength(1);
  expect((await read({ "p.jsonl": '{"title":"x"}' }, { template: "a {{title}}" })).notes).toEqual([]);
  expect(await problems({ "p.txt": "a fox\n" }, { template: "an owl" })).toEqual([
    "--prompt: has no {{prompt}}; write it where the line of a .txt file belongs",
  ]);
});

it("beside the named column, one that is called prompt is kept as metadata", async () => {
  const { items } = await read(
    { "p.csv": "prompt,revised\nold,a fox\n", "p.jsonl": '{"prompt":"old","revised":"an owl"}' },
    { promptColumn: "revised" },
  );
  expect(items.map(({ prompt, metadata }) => [prompt, metadata])).toEqual([
    ["a fox", '{"prompt":"old"}'],
    ["an owl", '{"prompt":"old"}'],
  ]);
});

it("ids may come from a column, and one that looks like it is named", async () => {
  const files = { "p.csv": "SKU,prompt\nA-1,a fox\nA-2,an owl\n" };
  const named = await read(files, { idColumn: "sku" });
  expect(named.items.map(({ customId, metadata }) => [customId, metadata])).toEqual([
    ["A-1", null],
    ["A-2", null],
  ]);
  expect((await read(files)).notes).toEqual([
    "SKU is kept as metadata; to name the images by it, call it custom_id, or use --id-column SKU",
  ]);
  const lines = { "p.jsonl": '{"id":7,"custom_id":"x","prompt":"a fox"}\n{"id":"8","prompt":"an owl"}' };
  const ids = await read(lines, { idColumn: "id" });
  expect(ids.items.map(({ customId }) => customId)).toEqual(["7", "8"]);
  expect(await problems({ "p.csv": "sku,prompt\n,a fox\n" }, { idColumn: "sku" })).toEqual([
    "p.csv:2: sku: is empty; give it an id, or remove the row",
  ]);
  expect(await problems({ "p.csv": "sku,prompt\nA,a fox\nA,an owl\n" }, { idColumn: "sku" })).toEqual([
    'p.csv:3: custom_id: "A" is already used by p.csv:2; every image needs an id of its own',
  ]);
  expect(await problems({ "p.csv": "prompt\na fox\n" }, { idColumn: "sku" })).toEqual([
    'p.csv:1: there is no column "sku"; the first row names prompt',
  ]);
  expect(await problems({ "p.txt": "a fox\n" }, { idColumn: "sku" })).toEqual([
    "--id-column: a .txt file has no columns; leave it out",
  ]);
});

it("a name in a prompt that is nearly a column or a variable is an error, and another one stays text", async () => {
  expect(await problems({ "p.csv": "prompt,season\na fox in {{seson}},winter\n" })).toEqual([
    "p.csv:2: {{seson}} has no variable; did you mean {{season}}?",
  ]);
  expect(await problems({ "p.jsonl": '{"prompt":"a {{Animal}}","animal":"fox"}' })).toEqual([
    "p.jsonl:1: {{Animal}} has no variable; did you mean {{animal}}?",
  ]);
  const { items, notes } = await read({ "p.csv": "prompt,x\n{{y}} and {{user}},winter\n" });
  expect(promptsOf(items)).toEqual(["{{y}} and {{user}}"]);
  expect(notes).toHaveLength(2);
});

it("reading that ends early closes the file", async () => {
  const dir = await tempDir();
  const filler = `${"x".repeat(300_000)}\n`;
  const wrong = {
    "p.jsonl": `[\n${filler}`,
    "p.csv": `name\n${filler}`,
    "q.tsv": `name\n${filler}`,
    "utf16.txt": Buffer.from(`\ufeff${filler}`, "utf16le"),
  };
  const open = async () => (await readdir("/proc/self/fd", { withFileTypes: true })).length;
  const before = await open();
  for (let round = 0; round < 5; round++)
    for (const [name, data] of Object.entries(wrong)) {
      await writeFile(join(dir, name), data);
      const reader = new PromptReader({ limits: DEFAULT_LIMITS, defaultCount: 1 });
      for await (const _ of reader.read(name, createReadStream(join(dir, name)))) break;
      expect(reader.problems.count).toBeGreaterThan(0);
    }
  await expect.poll(open).toBeLessThan(before + 4);
});

it("lines that cannot be decoded are reported also where the first row ends the reading", async () => {
  expect(await problems({ "p.csv": Buffer.from("na\xefme\nx\n", "latin1") })).toEqual([
    expect.stringMatching(/^p\.csv:1: is not valid UTF-8/),
    expect.stringMatching(/^p\.csv:2: the first row must name/),
  ]);
});

const openai = (body: object, more: object = {}) =>
  JSON.stringify({ custom_id: "r-1", method: "POST", url: "/v1/images/generations", body, ...more });
const gemini = (request: object, more: object = {}) => JSON.stringify({ key: "r-1", request, ...more });
const turn = (...parts: object[]) => ({ contents: [{ parts }] });
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

it("lines of a vendor's batch file are read as prompts", async () => {
  const lines = [
    openai({
      model: "gpt-image-2",
      prompt: "a fox",
      n: 2,
      size: "1536x1024",
      quality: "high",
      response_format: "b64_json",
    }),
    openai({ prompt: "an owl", size: "auto", background: "transparent", seed: null }, { custom_id: "r-2" }),
    gemini(
      {
        ...turn(
          { text: "a cat" },
          { inlineData: { mimeType: "image/png", data: PIXEL } },
          { text: "in ink" },
        ),
        model: "models/gemini-2.5-flash-image",
        generationConfig: {
          responseModalities: ["TEXT", "IMAGE"],
          imageConfig: { aspectRatio: "16:9", imageSize: "2K" },
          seed: 7,
        },
      },
      { key: "r-3" },
    ),
    gemini({ ...turn({ text: "a dog" }), generation_config: { candidate_count: 2 } }, { key: 4 }),
  ];
  const { items } = await read({ "p.jsonl": lines.join("\n") });
  expect(
    items.map(({ fileLine: _, number: __, metadata: ___, references, ...item }) => [item, references.length]),
  ).toEqual([
    [
      {
        customId: "r-1",
        prompt: "a fox",
        model: "gpt-image-2",
        outputCount: 2,
        size: "1536x1024",
        quality: "high",
      },
      0,
    ],
    [{ customId: "r-2", prompt: "an owl", outputCount: 1, background: "transparent" }, 0],
    [
      {
        customId: "r-3",
        prompt: "a cat\n\nin ink",
        model: "gemini-2.5-flash-image",
        outputCount: 1,
        aspect_ratio: "16:9",
        size: "2K",
        seed: 7,
      },
      1,
    ],
    [{ customId: "4", prompt: "a dog", outputCount: 2 }, 0],
  ]);
});

it.each([
  [openai({ prompt: "a fox", moderation: "low" }), "body.moderation: cannot be asked for"],
  [
    openai({ prompt: "a fox", output_format: "webp" }),
    "body.output_format: is chosen for the whole run: --mime-type",
  ],
  [openai({ prompt: "a fox", response_format: "url" }), 'body.response_format: "url": images come as files'],
  [openai({ prompt: "a fox", size: "large" }), 'body.size: "large": write pixels'],
  [openai({ prompt: "a fox" }, { url: "/v1/chat/completions" }), 'url: "/v1/chat/completions": lines for'],
  [openai({ prompt: "a fox" }, { method: "GET" }), 'method: "GET": lines of POST'],
  [openai({ prompt: "a fox" }, { priority: 1 }), "priority: cannot be asked for"],
  [gemini({ ...turn({ text: "a fox" }), systemInstruction: {} }), "request.systemInstruction: cannot be"],
  [gemini({ ...turn({ text: "a fox" }), tools: [{}] }), "request.tools: cannot be"],
  [
    gemini({ ...turn({ text: "a fox" }), generationConfig: { temperature: 1 } }),
    "request.generationConfig.temperature: cannot",
  ],
  [
    gemini({ ...turn({ text: "a fox" }), generation_config: { image_config: { x: 1 } } }),
    "request.generation_config.image_config.x: cannot",
  ],
  [
    gemini({ contents: [{ parts: [{ text: "a" }] }, { role: "model", parts: [] }] }),
    "request.contents: a conversation",
  ],
  [
    gemini(turn({ fileData: { fileUri: "x" } }, { text: "a fox" })),
    "request.contents[0].parts[0]: holds neither",
  ],
])("what a line of a batch file holds beyond a prompt is an error with its field", async (line, problem) => {
  const [found, ...others] = await problems({ "p.jsonl": line });
  expect(found).toContain(`p.jsonl:1: ${problem}`);
  expect(others).toEqual([]);
});

it.each([
  ["YAML", "p.yaml", "- prompt: a fox\n- prompt: an owl\n", "is YAML, which is not read"],
  ["YAML with a head", "p.yml", "---\nprompts:\n  - a fox\n", "is YAML, which is not read"],
  ["Markdown", "p.md", "# Prompts\n\n- a fox\n- an owl\n", "is Markdown, which is not read"],
  ["a Markdown table", "p.md", "| prompt |\n|---|\n| a fox |\n", "is Markdown, which is not read"],
  [
    "JSON over lines",
    "p.json",
    '{\n  "prompt": "a fox"\n}\n',
    "is JSON over several lines, which is not read",
  ],
  ["HTML", "p.html", "<html>\n<body>a fox\n", "is HTML or XML, which is not read"],
  ["RTF", "p.rtf", "{\\rtf1\\ansi\na fox\\par\n", "is a text of an office program, which is not read"],
  [
    "plain text",
    "p.prompts",
    "a fox\nan owl\n",
    "is not JSON lines; for a prompt a line use .txt or --format txt",
  ],
])(
  "a file that is %s has one problem, which names the form and the way out",
  async (_, name, text, problem) => {
    const [found, ...others] = await problems({ [name]: text });
    expect(found).toContain(`${name}: ${problem}`);
    expect(others).toEqual([]);
  },
);

it("a format that is named holds for every file", async () => {
  const { items } = await read({ "p.list": "a fox\nan owl\n", "p.jsonl": "a cat\n" }, { format: "txt" });
  expect(promptsOf(items)).toEqual(["a fox", "an owl", "a cat"]);
});

it.each([
  ["n", "is called output_count here"],
  ["num_images", "is called output_count here"],
  ["batch_size", "is called output_count here"],
  ["ar", "is called aspect_ratio here"],
  ["negative", "is called negative_prompt here"],
  ["image_url", "is called reference_images here"],
  ["input_image", "is called reference_images here"],
  ["steps", "there is no such option here"],
  ["guidance_scale", "there is no such option here"],
])("the field %s of another program is an error of its line, and in a table a note", async (name, advice) => {
  expect(await problems({ "p.jsonl": JSON.stringify({ prompt: "a fox", [name]: 2 }) })).toEqual([
    `p.jsonl:1: ${name}: ${advice}; or keep it for the results: "metadata": {"${name}": …}`,
  ]);
  const { notes } = await read({ "p.csv": `prompt,${name}\na fox,2\nan owl,\na cat,4\n` });
  expect(notes).toEqual([`p.csv: ${name}: ${advice}; the column is kept as metadata (2 rows)`]);
  const used = {
    "p.jsonl": JSON.stringify({ prompt: `a fox, {{${name}}}`, [name]: 2, metadata: { [name]: 1 } }),
  };
  expect((await read(used)).notes).toEqual([]);
});

it("width with height asks for a size, and one of them alone may be anything", async () => {
  expect(await problems({ "p.jsonl": '{"prompt":"a fox","width":1024,"height":576}' })).toEqual([
    expect.stringContaining('p.jsonl:1: width: is called size here, with both sides: "size": "WIDTHxHEIGHT"'),
    expect.stringContaining("p.jsonl:1: height: is called size here"),
  ]);
  const { items } = await read({ "p.jsonl": '{"prompt":"a fox","width":30}' });
  expect(items[0]?.metadata).toBe('{"width":30}');
});

it("options of other programs in prompts stay text, with a count for each; strict reading refuses them", async () => {
  const text = [
    "a lighthouse at night --ar 2:3 --seed 77",
    "/imagine prompt: a red fox in the snow --ar 16:9 --v 6.1 --no text",
    '--prompt "an owl" --negative_prompt "text" --width 768 --steps 20',
    "a {red|grey} fox in __season__, (fluffy:1.2) \u2014ar 3:2",
    "a sign -- 'well--done', at 10:30 (ratio 16:9), a {b} and snake_case__name",
  ].join("\n");
  const { items, notes } = await read({ "p.txt": text });
  expect(promptsOf(items)).toEqual(text.split("\n"));
  const [note = "", ...others] = notes;
  expect(others).toEqual([]);
  expect(note.replace(/^options of other programs stay text of the prompt: /, "").split("; ")).toEqual([
    "--ar (ours: aspect_ratio) in 3 lines",
    "--seed (ours: seed) in 1 line",
    "/imagine (ours: leave it out) in 1 line",
    "--v (ours: model) in 1 line",
    "--no (ours: negative_prompt) in 1 line",
    "--prompt (ours: the line itself is the prompt) in 1 line",
    "--negative_prompt (ours: negative_prompt) in 1 line",
    "--width (ours: size, such as 1536x1024) in 1 line",
    "--steps (ours: there is none here) in 1 line",
    '{a|b} (ours: "vars" in the line, or --var) in 1 line',
    "__list__ (ours: {{list}} with --var list=@FILE) in 1 line",
    "(word:1.2) (ours: say in words what matters) in 1 line",
  ]);
  const more = [
    "1. a fox",
    "- an owl",
    '"a fox",',
    "Prompt 2: a fox",
    "https://images.example/a.png a fox",
    "a fox:: red BREAK [cat:dog:0.5] ((blue)) embedding:x",
    '2001: a monolith - the "best", at 3.5 m (a) [b] std::x',
  ];
  const [marked = ""] = (await read({ "p.txt": more.join("\n") })).notes;
  expect(marked.match(/ in \d lines?/g)).toHaveLength(9);
  expect(marked).toContain("the number or dash of a list (ours: leave it out) in 2 lines");
  expect(await problems({ "p.txt": text }, { isStrict: true })).toContain(
    "p.txt:1: prompt: --ar is for another program, and stays text here; ours: aspect_ratio",
  );
});

it.each<[string, string, string]>([
  ["error of a spreadsheet", "p.csv", "prompt\n#NAME?\n"],
  ["value that a data frame lacks", "p.csv", "prompt\nNaN\n"],
  ["value that a database lacks", "p.tsv", "prompt\tx\nNULL\ty\n"],
  ["None of a program", "p.jsonl", '{"prompt":"None"}\n'],
  ["line between prompts", "p.txt", "---\n"],
  ["border of a table", "p.txt", "|---|:--|\n"],
])("%s is no prompt", async (_, file, text) => {
  const [problem, ...others] = await problems({ [file]: text });
  expect(problem).toMatch(/:[12]: prompt: .*; say what the image shows$/);
  expect(others).toEqual([]);
});

it("signs and pictures of a character set are prompts", async () => {
  const { items } = await read({ "p.txt": "\u{1f98a}\n\u2665\n\u72d0\n$\n7\nnone\n" });
  expect(items).toHaveLength(6);
});

it("a cell that stands for no value is an error where the prompt uses it, and a typed value is none", async () => {
  const table = "prompt,pet,note\na {{pet}},#N/A,fine\na {{pet}},fox,#N/A\n";
  expect(await problems({ "p.csv": table })).toEqual([
    "p.csv:2: pet: is #N/A, as programs write for no value, and {{pet}} stands for it; fill it in, or remove the line",
  ]);
  const typed = await read({ "p.jsonl": '{"prompt":"a sign: {{word}}","vars":{"word":["NULL","nan"]}}' });
  expect(promptsOf(typed.items)).toEqual(["a sign: NULL", "a sign: nan"]);
});

it("the names of the columns that stand in a table once more are no row", async () => {
  expect(await problems({ "p.csv": "Prompt,id\na fox,1\nPrompt,id\nan owl,2\n" })).toEqual([
    "p.csv:3: repeats the names of the columns; remove the line",
  ]);
});

it.each<[string, string, string]>([
  ["a table with tabs", "id\tprompt\n1\ta fox\n", "use --format tsv"],
  ["a table with commas", '"id","Prompt"\n1,a fox\n', "use --format csv"],
  ["a single column", "prompt\na fox\n", "use --format csv"],
  ["JSON lines", '{"prompt":"a fox"}\n{"prompt":"an owl"}\n', "use --format jsonl"],
  ["a JSON array", '[\n{"prompt":"a fox"}\n]\n', "holds JSON or code"],
  ["a list of a program", 'prompts = [\n"a fox",\n]\n', "holds JSON or code"],
  ["HTML", "<!DOCTYPE html>\n<p>a fox</p>\n", "is HTML or XML"],
  ["YAML", "prompts:\n- a fox\n", "is YAML"],
])("a .txt file that is %s is one problem, and none of its lines is a prompt", async (_, text, way) => {
  expect(await problems({ "p.txt": text })).toEqual([expect.stringContaining(way)]);
});

it("lines of a .txt file that look a little like other forms are prompts", async () => {
  const lines = [
    "prompt, a stage whisper",
    '{"subject":"fox","style":"ink"}',
    "{a|b} fox",
    "[a fox]",
    "prompt: a fox",
  ];
  for (const line of lines) expect(promptsOf((await read({ "p.txt": line })).items)).toEqual([line]);
});

it.each([
  ["a fox\fan owl", "U+000C"],
  ["a fox\u2028an owl", "U+2028"],
  ["a fox\van owl", "U+000B"],
  ["a fox\ran owl", "U+000D"],
])(
  "a line of a .txt file that other programs end within is an error, and at its ends that is blank: %j",
  async (line, code) => {
    expect(await problems({ "p.txt": `a cat\n${line}\n` })).toEqual([
      `p.txt:2: holds ${code}, which ends a line in other programs; write each prompt in a line of its own`,
    ]);
    const ends = line.replace(/^a fox|an owl$/g, "");
    expect(promptsOf((await read({ "p.txt": `a cat\n${ends}a dog${ends}\n` })).items)).toEqual([
      "a cat",
      "a dog",
    ]);
  },
);

it("settings of another program behind a prompt are no prompts of a .txt file", async () => {
  const text = "a fox\nNegative prompt: blurry\nSteps: 20, Sampler: Euler a, Seed: 7\n";
  const message = "holds settings of another program, not a prompt; remove the line";
  expect(await problems({ "p.txt": text })).toEqual([`p.txt:2: ${message}`, `p.txt:3: ${message}`]);
});

it("the name of a column in the marks of another program is an error, since all images would be the same", async () => {
  const table = { "p.csv": "product,color\nchair,red\ntable,blue\n" };
  expect(await problems(table, { template: "a {color} $product, {{color}}" })).toEqual([
    "--prompt: {color}: stays text; write {{color}}",
    "--prompt: $product: stays text; write {{product}}",
  ]);
  expect(await problems({ "p.jsonl": '{"prompt":"a %(animal)s","animal":"fox"}' })).toEqual([
    "p.jsonl:1: prompt: %(animal)s stays text; write {{animal}}",
  ]);
  const { items } = await read({ "p.csv": "prompt,color\na {shape} [color] $5 {red|blue},red\n" });
  expect(promptsOf(items)).toEqual(["a {shape} [color] $5 {red|blue}"]);
});

it("traces of a wrong export stay text, with a count for each; strict reading refuses them", async () => {
  const text =
    "ein FÃ¼chslein\na r\ufffdd fox\nsalt &amp; pepper<br>\na fox\\nin snow\nR&D; 5 < 6 > 3, C:/new, São, Â\n";
  const { items, notes } = await read({ "p.txt": text });
  expect(promptsOf(items)).toEqual(text.trim().split("\n"));
  expect(notes).toEqual([
    "what looks like a wrong export stays text of the prompt: such as Ã¼ or â€™ (UTF-8 that was read as another encoding) in 1 line; " +
      "\ufffd (a character was lost) in 1 line; such as &amp; (of HTML) in 1 line; such as <br> (of HTML) in 1 line; " +
      "such as \\n (escaped for a program) in 1 line",
  ]);
  expect(await problems({ "p.txt": text }, { isStrict: true })).toHaveLength(5);
});

it.each([
  [{ count: 4 }, "count: is called output_count here"],
  [{ numberOfImages: 2 }, "numberOfImages: is called output_count here"],
  [{ orientation: "portrait" }, "orientation: is called aspect_ratio here"],
  [{ resolution: "1024x1024" }, "resolution: is called size here"],
  [{ references: ["a.png"] }, "references: is called reference_images here"],
  [{ output_format: "webp" }, "output_format: is chosen for the whole run here: --mime-type"],
  [{ mask: "m.png" }, "mask: there is no such option here"],
])("a field that would change the images is no metadata: %j", async (field, problem) => {
  const line = JSON.stringify({ prompt: "a fox", ...field });
  expect(await problems({ "p.jsonl": line })).toEqual([expect.stringContaining(`p.jsonl:1: ${problem}`)]);
});

it("fields of a data set that only have such names are metadata", async () => {
  const own = { count: "many", orientation: 3, resolution: "none found", reference: "Smith 2020" };
  const { items } = await read({ "p.jsonl": JSON.stringify({ prompt: "a fox", ...own }) });
  expect(JSON.parse(String(items[0]?.metadata))).toEqual(own);
});

it("seeds reach to 4294967295, and -1 is told what stands for any", async () => {
  const line = (seed: number, output_count = 1) => ({
    "p.jsonl": JSON.stringify({ prompt: "a fox", seed, output_count }),
  });
  expect((await read(line(3735928559))).items[0]?.seed).toBe(3735928559);
  expect(await problems(line(-1))).toEqual(["p.jsonl:1: seed: -1: leave it out for any seed"]);
  expect(await problems(line(2 ** 32))).toEqual([
    "p.jsonl:1: seed: 4294967296: write a whole number from 0 to 4294967295",
  ]);
  expect(await problems(line(2 ** 32 - 2, 3))).toEqual([
    "p.jsonl:1: seed: 4294967294: the last of 3 images would have a seed above 4294967295",
  ]);
  expect((await read(line(2 ** 32 - 2, 2))).items).toHaveLength(1);
});

it("a data URL is taken as a reference image, in each place for one", async () => {
  const url = `data:image/png;base64,${PIXEL}`;
  const { items } = await read({
    "p.jsonl": JSON.stringify({
      prompt: "in autumn",
      reference_images: [url, { path: url, id: "a" }, { data: url }],
    }),
    "p.csv": `prompt,reference_images\nin spring,${url.replace(",", "%2C").replace("%2C", ",")}\n`.replace(
      url,
      `"${url}; ${url}"`,
    ),
  });
  expect(items.map(({ references }) => references.length)).toEqual([3, 2]);
  expect(
    await problems({ "p.jsonl": '{"prompt":"x","reference_images":["data:image/png,%89PNG"]}' }),
  ).toEqual([
    "p.jsonl:1: reference_images[0]: is a data URL that is not Base64; write data:image/png;base64,…",
  ]);
});

it("a problem repeats no more than 200 characters of what was written", async () => {
  const long = "x".repeat(50_000);
  const found = await problems({
    "p.jsonl": [
      JSON.stringify({ prompt: "a", output_count: long }),
      JSON.stringify({ prompt: "a", reference_images: [`${long}.png`] }),
      JSON.stringify({ prompt: "a", reference_images: [`https://${long}.png`] }),
      JSON.stringify({ prompt: "a", aspect_ratio: long, model: long, quality: long }),
      JSON.stringify({ prompt: "a", metadata: long }),
      JSON.stringify({ prompt: "a", [`promt${long}`]: 1, vars: { [long]: "y" } }),
    ].join("\n"),
  });
  for (const problem of found) expect(problem.length).toBeLessThan(600);
});

it("of a directory of pictures, other files are left out with a note, also where a pattern names all", async () => {
  const dir = await tempDir();
  const names = ["a.png", "b.jpg", "c.heic", "d.txt", "e.pdf", "f.mov", "g.tif"];
  for (const name of names) await writeFile(join(dir, name), "");
  for (const pattern of [dir, join(dir, "*")]) {
    const notes: string[] = [];
    const { values } = await readImages(pattern, "/", (remark) => notes.push(remark));
    expect(values.map(({ text }) => text)).toEqual(["a", "b"]);
    expect(notes).toEqual([
      `--images ${pattern}: left out 5 files that are no PNG, JPEG or WebP by the ending: c.heic, d.txt, e.pdf, f.mov, …`,
    ]);
  }
});

it("a file that is not there, and a directory in its place, name what was meant", async () => {
  const cwd = await tempDir();
  await writeFile(join(cwd, "prompts.jsonl"), '{"prompt":"a fox"}');
  await mkdir(join(cwd, "run"));
  await writeFile(join(cwd, "run", "imgbatch.json"), "{}");
  await mkdir(join(cwd, "photos"));
  await writeFile(join(cwd, "photos", "a.png"), "");
  const problemOf = async (name: string) => {
    const sources = [{ name, cwd, stdin: async function* () {} }];
    const error = await readPromptFiles(sources, { limits: DEFAULT_LIMITS, defaultCount: 1 }).catch(
      (thrown) => thrown,
    );
    return error.details.join("\n");
  };
  expect(await problemOf("prompt.jsonl")).toBe("prompt.jsonl: no such file; did you mean prompts.jsonl?");
  expect(await problemOf("prompts.csv")).toBe("prompts.csv: no such file; did you mean prompts.jsonl?");
  expect(await problemOf("a red fox")).toMatch(
    /no such file; to make an image of these words: .*generate 'a red fox'$/,
  );
  expect(await problemOf(".")).toBe(".: is a directory; name a file in it, such as prompts.jsonl");
  expect(await problemOf("run")).toMatch(
    /^run: is the output directory of a run: name its prompt file; .*retry run makes/,
  );
  expect(await problemOf("photos")).toBe(
    "photos: is a directory; name a prompt file, and the images with --images photos",
  );
});
