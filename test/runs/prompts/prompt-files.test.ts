import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import sharp from "sharp";
import { expect, it } from "vitest";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import type { RowRules } from "../../../src/prompts/check-row.ts";
import { repeatedKeys } from "../../../src/prompts/prompt-reader.ts";
import { type PromptItem, readPromptFiles } from "../../../src/runs/plan/prompt-files.ts";
import { blackPng, manyScans } from "../../soak/bombs/images.mjs";
import { png } from "../../support/fake-service.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { tempDir } from "../../support/temp-dir.ts";

type Files = Record<string, string | Uint8Array>;

async function read(
  files: Files,
  names = Object.keys(files),
  rules: Partial<RowRules> = {},
): Promise<PromptItem[]> {
  const cwd = await tempDir();
  for (const [name, data] of Object.entries(files)) await writeFile(join(cwd, name), data);
  const stdin = async function* () {
    yield Buffer.from(files["-"] ?? "");
  };
  const sources = names.map((name) => ({ name, cwd, stdin }));
  return readPromptFiles(sources, { limits: DEFAULT_LIMITS, defaultCount: 1, ...rules });
}

async function problems(
  files: Files,
  names?: string[],
  rules?: Partial<RowRules>,
): Promise<readonly string[]> {
  const error = await read(files, names, rules).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(ImgbatchError);
  expect(error.code).toBe("INVALID_INPUT");
  return error.details;
}

it("[FILE-1] JSON lines give prompts with their ids and counts; blank lines, comments and a byte order mark are skipped", async () => {
  const text =
    '\ufeff{"prompt": " a cat "}\r\n\r\n// a comment\n{"prompt":"b","custom_id":"x","output_count":3}';
  expect(await read({ "p.jsonl": text })).toEqual([
    {
      prompt: "a cat",
      customId: null,
      outputCount: 1,
      references: [],
      metadata: null,
      fileLine: { file: "p.jsonl", line: 1 },
      number: 1,
    },
    {
      prompt: "b",
      customId: "x",
      outputCount: 3,
      references: [],
      metadata: null,
      fileLine: { file: "p.jsonl", line: 4 },
      number: 2,
    },
  ]);
});

it("[FILE-1] standard input is read as JSON lines and named <stdin>", async () => {
  expect((await read({ "-": '{"prompt":"a"}' }, ["-"]))[0]?.fileLine).toEqual({ file: "<stdin>", line: 1 });
  expect(await problems({ "-": "{" }, ["-"])).toEqual([
    expect.stringMatching(/^<stdin>:1: is not valid JSON/),
  ]);
});

it("[FILE-2] every problem of every file is reported with file, line, field and what would be right", async () => {
  const a = [
    '{"prompt":"ok"}',
    '{"promt":"typo"}',
    "nonsense",
    '{"prompt":"x","output_count":9}',
    '["list"]',
  ].join("\n");
  const b = '{"prompt":5,"custom_id":"a/b"}\n{"prompt":"   "}';
  expect(await problems({ "a.jsonl": a, "b.jsonl": b })).toEqual([
    "a.jsonl:2: promt: is not a known field; did you mean prompt?",
    "a.jsonl:2: prompt: is missing; say what the image shows",
    expect.stringMatching(
      /^a\.jsonl:3: is not valid JSON \(.*\); write one object a line, like \{"prompt": "a red bicycle"\}$/,
    ),
    "a.jsonl:4: output_count: must be a whole number from 1 to 4, not 9",
    expect.stringMatching(/^a\.jsonl:5: is a list, not an object/),
    "b.jsonl:1: prompt: must be a string, not a number",
    expect.stringMatching(/^b\.jsonl:1: custom_id: must not hold/),
    "b.jsonl:2: prompt: is empty; say what the image shows",
  ]);
});

it("unknown fields and columns become metadata; strict reading refuses them and lists the known ones", async () => {
  const rows = [
    { prompt: "a", mood: "b", metadata: { source: 7 }, tags: ["x"] },
    { prompt: "c", ["__proto__"]: 1 },
  ];
  const files = {
    "p.jsonl": `${JSON.stringify(rows[0])}\n{"prompt":"c","__proto__":1}`,
    "p.csv": "prompt,Shop,line\na,7,x\nb,,",
  };
  const metadata = (await read(files)).map((item) => item.metadata);
  expect(metadata).toEqual([
    '{"source":7,"mood":"b","tags":["x"]}',
    '{"__proto__":1}',
    '{"Shop":"7","line":"x"}',
    null,
  ]);
  expect(await problems(files, undefined, { isStrict: true })).toEqual([
    "p.jsonl:1: mood: is not a known field; the fields are prompt, vars, custom_id, output_count, reference_images, model, aspect_ratio, size, quality, background, seed, negative_prompt, file, pixels, fit, position, format, encode_quality, trim, also, metadata",
    expect.stringMatching(/^p\.jsonl:1: tags: is not a known field/),
    expect.stringMatching(/^p\.jsonl:2: __proto__: is not a known field/),
    expect.stringMatching(/^p\.csv:1: Shop: is not a known field/),
    expect.stringMatching(/^p\.csv:1: line: is not a known field/),
  ]);
  expect(await problems({ "p.jsonl": '{"prompt":"a","metadata":["x"],"metadatas":{}}' })).toEqual([
    "p.jsonl:1: metadata: must be an object, not a list; other fields are metadata, too",
    "p.jsonl:1: metadatas: is not a known field; did you mean metadata?",
  ]);
});

it("invalid UTF-8 is an error that names the line, and the other lines are still checked", async () => {
  const bytes = Buffer.concat([
    Buffer.from('{"prompt":"a"}\n{"prompt":"'),
    Buffer.from([0xff, 0xfe]),
    Buffer.from('"}\n{}'),
  ]);
  expect(await problems({ "p.jsonl": bytes })).toEqual([
    "p.jsonl:2: is not valid UTF-8; save the file as UTF-8",
    "p.jsonl:3: prompt: is missing; say what the image shows",
  ]);
  expect(await problems({ "p.jsonl": Buffer.from('\ufeff{"prompt":"a"}', "utf16le") })).toEqual([
    "p.jsonl:1: the file is UTF-16; save it as UTF-8",
  ]);
});

const latin1 = (text: string) => Buffer.from(text, "latin1");
const NOISE = Buffer.from(Array.from({ length: 2000 }, (_, i) => (i * i) % 256));
it.each([
  ["a PNG image", latin1("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\n\n\n"), "is a PNG image, not a prompt file"],
  [
    "a workbook",
    latin1("PK\x03\x04\x14\0\0\0[Content_Types].xml\n\n"),
    expect.stringContaining("save the sheet as CSV"),
  ],
  [
    "an archive",
    latin1("PK\x03\x04\x14\0\0\0p.jsonl\n\n"),
    "is a ZIP archive, not a prompt file; unpack it first",
  ],
  [
    "a compressed file",
    gzipSync("prompt\na cat\n"),
    "is a compressed file, not a prompt file; unpack it first",
  ],
  [
    "UTF-16 without a mark",
    Buffer.from('{"prompt":"a"}\n{}\n', "utf16le"),
    "the file is UTF-16; save it as UTF-8",
  ],
  ["noise", NOISE, "is not a text file"],
])("%s has one problem, in whatever kind of prompt file", async (_, bytes, problem) => {
  for (const name of ["p.jsonl", "p.txt", "p.csv", "p.tsv"]) {
    const [found, ...others] = await problems({ [name]: bytes });
    expect([found?.slice(0, 2 + name.length), others]).toEqual([`${name}: `, []]);
    expect(found?.slice(2 + name.length)).toEqual(problem);
  }
});

it("lines in another encoding are one problem, with the first of them", async () => {
  expect(await problems({ "p.txt": latin1("a cat\ncaf\xe9\nth\xe9\n") })).toEqual([
    "p.txt:2: is not valid UTF-8 (also 1 other line); save the file as UTF-8",
  ]);
  expect(await problems({ "p.txt": "a\0cat\na dog\n" })).toEqual([
    expect.stringContaining("p.txt:1: prompt: holds NUL"),
  ]);
});

it("prompts are limited in characters, not in bytes, and hold no half characters", async () => {
  expect(await read({ "p.jsonl": JSON.stringify({ prompt: "🐈".repeat(8000) }) })).toHaveLength(1);
  expect(await problems({ "p.jsonl": JSON.stringify({ prompt: "x".repeat(8001) }) })).toEqual([
    "p.jsonl:1: prompt: has 8001 characters; at most 8000 are allowed",
  ]);
  expect(await problems({ "p.jsonl": '{"prompt":"\\ud83d"}' })).toEqual([
    expect.stringContaining("half a character pair"),
  ]);
});

it("an id used twice in a run is named with the line that has it, also when a counter makes it", async () => {
  const a = '{"prompt":"1","custom_id":"cat","output_count":2}';
  const b = '{"prompt":"2","custom_id":"cat_01"}\n{"prompt":"3","custom_id":"cat","output_count":2}';
  expect(await problems({ "a.jsonl": a, "b.jsonl": b })).toEqual([
    'b.jsonl:1: custom_id: "cat_01" is already used by a.jsonl:1; every image needs an id of its own',
    'b.jsonl:2: custom_id: "cat_01" is already used by a.jsonl:1; every image needs an id of its own',
  ]);
});

it("[FILE-6] reference images are paths beside the prompt file, objects, or inline, with their type taken from the bytes", async () => {
  const inline = { mime_type: "image/png", data: png("in").toString("base64"), id: "i" };
  const line = {
    prompt: "edit",
    reference_images: ["photo.jpg", { path: "photo.jpg", type: "style" }, inline],
  };
  const [item] = await read({ "p.jsonl": JSON.stringify(line), "photo.jpg": png("photo", 8, 5) }, [
    "p.jsonl",
  ]);
  expect(item?.references).toMatchObject([
    { mimeType: "image/png", pixels: 40, source: { path: expect.stringMatching(/photo\.jpg$/) } },
    { mimeType: "image/png", type: "style" },
    { mimeType: "image/png", id: "i", source: { kept: { bytes: png("in").length } } },
  ]);
});

it("every way in which a reference image can be wrong is said", async () => {
  const data = png("x").toString("base64");
  const bad = [
    "missing.png",
    "text.png",
    ".",
    "large.png",
    7,
    {},
    { path: "a.png", data, mime_type: "image/png" },
    { data: `data:image/png;base64,${data}`, mime_type: "image/png" },
    { data, mime_type: "image/webp" },
    { data },
    { data, mime_type: "image/png", urll: "x" },
    { data: Buffer.from("text").toString("base64"), mime_type: "image/png" },
    { path: "text.png", id: "x".repeat(81) },
    "wide.png",
    { data: manyScans(8, 8, 101).toString("base64"), mime_type: "image/jpeg" },
  ];
  const files = {
    "p.jsonl": JSON.stringify({ prompt: "edit", reference_images: bad }),
    "text.png": "no image",
    "large.png": new Uint8Array(10 * 1024 * 1024 + 1),
    "wide.png": blackPng(16_385, 1),
  };
  const found = await problems(files, ["p.jsonl"]);
  expect(found.map((line) => line.replace(/^p\.jsonl:1: reference_images/, ""))).toEqual([
    expect.stringMatching(/^\[4\]: must be a path or an object/),
    expect.stringMatching(/^\[5\]: needs either path/),
    expect.stringMatching(/^\[6\]: needs either path/),
    expect.stringMatching(/^\[9\]\.mime_type: is missing/),
    expect.stringMatching(/^\[10\]\.urll: is not a known field/),
    expect.stringMatching(/^\[12\]\.id: must be a string of at most 80/),
    "[0]: missing.png does not exist (paths are relative to the prompt file)",
    expect.stringMatching(/^\[1\]: text\.png must be a PNG/),
    "[2]: . is not a file",
    expect.stringMatching(/^\[3\]: large\.png has 10485761 bytes; at most 10485760/),
    '[8].mime_type: is "image/webp"; it should be image/png',
    expect.stringMatching(/^\[11\]\.data: must be a PNG/),
    expect.stringMatching(/^\[12\]: text\.png/),
    "[13]: wide.png has 16385x1 pixels; at most 16,384 pixels a side are allowed",
    "[14].data: has too many scans; at most 100 scans are allowed",
  ]);
});

it("a reference image that was cut or whose header is damaged is named with its path, its field and what is missing", async () => {
  const whole = {
    "p.png": png("p", 40, 30),
    "p.jpg": await sharp(png("p", 40, 30))
      .jpeg()
      .toBuffer(),
    "p.webp": await sharp(png("p", 40, 30))
      .webp()
      .toBuffer(),
  };
  for (const [name, data] of Object.entries(whole)) {
    const line = JSON.stringify({ prompt: "edit", reference_images: [name] });
    const added = Buffer.concat([data, Buffer.from("added by a camera")]);
    expect(await read({ "p.jsonl": line, [name]: added }, ["p.jsonl"])).toHaveLength(1);
    for (const size of [20, 100, data.length >> 1, data.length - 1]) {
      const [found] = await problems({ "p.jsonl": line, [name]: data.subarray(0, size) }, ["p.jsonl"]);
      expect(found).toContain(`p.jsonl:1: reference_images[0]: ${name} is a damaged image: it`);
      expect(found).toMatch(/; copy or save it again$/);
    }
  }
  const inline = { mime_type: "image/png", data: whole["p.png"].subarray(0, 100).toString("base64") };
  expect(await problems({ "p.jsonl": JSON.stringify({ prompt: "e", reference_images: [inline] }) })).toEqual([
    "p.jsonl:1: reference_images[0].data: is a damaged image: it has no IEND chunk; give all of its bytes",
  ]);
  const flat = Buffer.from(whole["p.png"]);
  flat.writeUInt32BE(0, 16);
  const line = JSON.stringify({ prompt: "edit", reference_images: ["flat.png"] });
  expect(await problems({ "p.jsonl": line, "flat.png": flat }, ["p.jsonl"])).toEqual([
    expect.stringContaining("flat.png is a damaged image: its header gives no size"),
  ]);
});

it("the end of a preview in the header of a JPEG is not the end of the image", async () => {
  const preview = await sharp(png("t", 4, 3))
    .jpeg()
    .toBuffer();
  const jpeg = await sharp(png("p", 40, 30))
    .jpeg()
    .toBuffer();
  const head = Buffer.from([0xff, 0xe1, 0, 0]);
  head.writeUInt16BE(preview.length + 2, 2);
  const data = Buffer.concat([jpeg.subarray(0, 2), head, preview, jpeg.subarray(2)]);
  const line = JSON.stringify({ prompt: "edit", reference_images: ["p.jpg"] });
  expect(await read({ "p.jsonl": line, "p.jpg": data }, ["p.jsonl"])).toHaveLength(1);
  expect(await problems({ "p.jsonl": line, "p.jpg": data.subarray(0, -40) }, ["p.jsonl"])).toEqual([
    expect.stringContaining("p.jpg is a damaged image: it has no end-of-image marker"),
  ]);
});

it("a key that a line has twice is an error of that line, since one of its values would be lost", async () => {
  const text = [
    '{"prompt":"a","prompt":"b"}',
    '{"prompt":"a","custom_id":"x", "pro\\u006dpt" : "b","custom_id":"x","custom_id":"x"}',
    '{"prompt":"fine: {\\"prompt\\":1,\\\\","custom_id":"prompt"}',
    '{"prompt":"x","reference_images":["prompt",{"path":"p.png","id":"prompt"},{"path":"p.png","id":"prompt"}]}',
  ].join("\n");
  expect(await problems({ "p.jsonl": text, "p.png": png("p"), prompt: png("p") }, ["p.jsonl"])).toEqual([
    expect.stringMatching(/^p\.jsonl:1: prompt: appears more than once; keep one/),
    expect.stringMatching(/^p\.jsonl:2: prompt: appears more than once/),
    expect.stringMatching(/^p\.jsonl:2: custom_id: appears more than once/),
  ]);
});

it("of any object, exactly the keys that stand twice at its top are found", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.string(), fc.jsonValue())), fc.boolean(), (pairs, isWide) => {
      const space = isWide ? " \t" : "";
      const members = pairs.map(
        ([key, value]) => `${space}${JSON.stringify(key)}${space}:${space}${JSON.stringify(value)}`,
      );
      const keys = pairs.map(([key]) => key);
      const expected = new Set(keys.filter((key, i) => keys.indexOf(key) < i));
      expect(new Set(repeatedKeys(`{${members.join(",")}}`))).toEqual(expected);
    }),
    { numRuns: fuzzRuns(500) },
  );
});

it("a text file has a prompt a line", async () => {
  const items = await read({ "p.txt": "a cat\n\n// a comic\n  a dog  \n" });
  expect(items.map(({ prompt, fileLine }) => [prompt, fileLine.line])).toEqual([
    ["a cat", 1],
    ["// a comic", 3],
    ["a dog", 4],
  ]);
});

it("a table names its columns in the first row; cells may be quoted and hold separators, quotes and line breaks", async () => {
  const csv = 'custom_id,prompt,output_count\r\nx,"a ""big"", red\ncat",2\r\n\n\n,plain,\n';
  const items = await read({ "p.csv": csv });
  expect(
    items.map(({ customId, prompt, outputCount, fileLine }) => [
      customId,
      prompt,
      outputCount,
      fileLine.line,
    ]),
  ).toEqual([
    ["x", 'a "big", red\ncat', 2, 2],
    [null, "plain", 1, 6],
  ]);
  const tsv = await read(
    { "p.tsv": "prompt\treference_images\na, b\tx.png; y.png", "x.png": png("x"), "y.png": png("y") },
    ["p.tsv"],
  );
  expect(tsv[0]).toMatchObject({
    prompt: "a, b",
    references: [{ mimeType: "image/png" }, { mimeType: "image/png" }],
  });
});

it("what is wrong with a table is said by line", async () => {
  expect(await problems({ "p.csv": "name,count\nx,1" })).toEqual([
    'p.csv:1: the first row must name the columns, and one of them must be prompt; name it with --prompt-column, or write the prompt: --prompt "a picture of {{name}}"',
  ]);
  expect(await problems({ "p.csv": 'prompt\nok\na,b\n"open' })).toEqual([
    "p.csv:3: has 2 cells but the first row names 1; quote cells that hold the separator",
    'p.csv:4: a quoted cell is not closed; end it with "',
  ]);
});

it("cells as people write them: quotes inside, blanks after a quote, line breaks of Windows, prompts that begin with //", async () => {
  const csv = [
    "\ufeffprompt,custom_id,",
    'a sign that says "open",a',
    '"quoted" ,b',
    '"""all"" of it",c',
    '"two\r\nlines, // of it",d\r',
    '// a comic with "quotes",e',
    "  // indented",
    "   ",
    "short",
  ].join("\n");
  expect(
    (await read({ "p.csv": csv })).map(({ prompt, customId, fileLine }) => [prompt, customId, fileLine.line]),
  ).toEqual([
    ['a sign that says "open"', "a", 2],
    ["quoted", "b", 3],
    ['"all" of it', "c", 4],
    ["two\r\nlines, // of it", "d", 5],
    ['// a comic with "quotes"', "e", 7],
    ["// indented", null, 8],
    ["short", null, 10],
  ]);
});

it("columns that are unknown, double or separated in another way are said once, with what was meant", async () => {
  expect(await problems({ "p.csv": "prompt,promt,promt\na,b,c\nd,e,f" })).toEqual([
    "p.csv:1: promt: is the name of two columns; remove or rename one",
    "p.csv:1: promt: is not a known field; did you mean prompt?",
  ]);
  expect(await problems({ "p.csv": "prompt,,\na,b,\nc,d," })).toEqual([
    "p.csv:1: a column has cells but no name; name it or remove it",
  ]);
  expect(await problems({ "p.csv": "prompt|custom_id\na|b" })).toEqual([
    'p.csv:1: the first row must name the columns, and one of them must be prompt; the cells are separated by "|": save the file with commas',
  ]);
  expect(await problems({ "p.csv": "Promt,x\na,b" })).toEqual([
    'p.csv:1: the first row must name the columns, and one of them must be prompt; did you mean prompt by "Promt"?',
  ]);
});

it("[FILE-2] a slip in a short name is said with what was meant, and other words as short are metadata", async () => {
  const slips = {
    siez: "size",
    sizee: "size",
    sze: "size",
    sede: "seed",
    modle: "model",
    vras: "vars",
  };
  const table = (names: readonly string[]) => `prompt,${names.join(",")}\na${",7".repeat(names.length)}\n`;
  expect(await problems({ "p.csv": table(Object.keys(slips)) })).toEqual(
    Object.entries(slips).map(
      ([name, meant]) => `p.csv:1: ${name}: is not a known field; did you mean ${meant}?`,
    ),
  );
  expect(await problems({ "p.jsonl": '{"prompt":"a","Size":"2K"}' })).toEqual([
    "p.jsonl:1: Size: is not a known field; did you mean size?",
  ]);
  const words = [
    "side",
    "site",
    "sizes",
    "need",
    "seek",
    "speed",
    "see",
    "mode",
    "models",
    "modem",
    "cars",
    "var",
    "line",
  ];
  const [row] = await read({ "p.csv": table(words) });
  expect(Object.keys(JSON.parse(String(row?.metadata)))).toEqual(words);
});

it("quotes that go wrong are said with the line where the row begins", async () => {
  const csv = 'prompt,custom_id\n"he said "hi" twice",a\n  // a,b\nc,"d"\n"fine",e\n"caf';
  expect(await problems({ "p.csv": Buffer.concat([Buffer.from(csv), Buffer.from([0xe9])]) })).toEqual([
    expect.stringMatching(/^p\.csv:2: has text after the quote that closes a cell; write "" for a quote/),
    "p.csv:6: is not valid UTF-8; save the file as UTF-8",
  ]);
});

it("a file that is missing, empty or only comments is an error", async () => {
  expect(await problems({}, ["none.jsonl"])).toEqual(["none.jsonl: no such file"]);
  expect(await problems({ "p.jsonl": "\n// nothing\n" })).toEqual(["p.jsonl: holds no prompts"]);
});

it("a header may be written in any case, and semicolons separate the cells where no comma does", async () => {
  const rows = async (text: string) =>
    (await read({ "p.csv": text })).map(({ prompt, customId, outputCount }) => [
      prompt,
      customId,
      outputCount,
    ]);
  const spreadsheet = '\nPrompt;Custom_ID\na fox, red;one\n"an owl; grey";two\n';
  expect(await rows(spreadsheet)).toEqual([
    ["a fox, red", "one", 1],
    ["an owl; grey", "two", 1],
  ]);
  expect(await rows("PROMPT,output_count\na fox; red,2\n")).toEqual([["a fox; red", null, 2]]);
});

it("a JSON array instead of lines is one problem, which names the way to lines", async () => {
  const text = JSON.stringify([{ prompt: "a fox" }, { prompt: "an owl" }], null, 2);
  const [problem, ...others] = await problems({ "p.jsonl": text });
  expect(problem).toMatch(/^p\.jsonl: is a JSON array; write one object a line.*jq -c '\.\[\]'/);
  expect(others).toEqual([]);
});

it("whatever the bytes of a prompt file, the answer is prompts or one error with lines", async () => {
  const fragments = fc.constantFrom(
    '{"prompt":"a"}',
    "\n",
    '"',
    ",",
    "{",
    "}",
    "\r\n",
    "prompt",
    "\ufeff",
    "//",
    "\t",
    "null",
    "[1]",
    "é",
  );
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.array(fragments, { maxLength: 30 }).map((parts) => Buffer.from(parts.join(""))),
  );
  const cwd = await tempDir();
  let run = 0;
  await fc.assert(
    fc.asyncProperty(bytes, fc.constantFrom("jsonl", "txt", "csv", "tsv"), async (data, extension) => {
      const name = `${run++}.${extension}`;
      await writeFile(join(cwd, name), data);
      const source = { name, cwd, stdin: async function* () {} };
      try {
        const items = await readPromptFiles([source], { limits: DEFAULT_LIMITS, defaultCount: 1 });
        expect(items.length).toBeGreaterThan(0);
      } catch (error) {
        expect(error).toMatchObject({ code: "INVALID_INPUT" });
        for (const line of (error as ImgbatchError).details ?? []) expect(line).toMatch(/^\d+\.\w+(:\d+)?: /);
      }
    }),
    { numRuns: fuzzRuns(300) },
  );
});

it("a line that is nested 5,000 or 200,000 levels deep is a problem with its line and what is allowed", async () => {
  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
  const text = [
    `{"prompt":"{{a}}","vars":{"a":"fox"},"metadata":{"deep":${nested(5000)}}}`,
    `{"prompt":"a fox","deep":${nested(200_000)}}`,
    `{"prompt":"a fox","deep":${nested(63)}}`,
    `{"prompt":"a fox","deep":${nested(64)}}`,
  ].join("\n");
  const problem = "is nested too deep: lists and objects may be 64 levels deep";
  expect(await problems({ "p.jsonl": text })).toEqual([1, 2, 4].map((line) => `p.jsonl:${line}: ${problem}`));
});
