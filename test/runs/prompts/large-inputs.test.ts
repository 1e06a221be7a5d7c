import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import type { ImgbatchError } from "../../../src/contract/errors.ts";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { readLines } from "../../../src/prompts/lines.ts";
import { readTable } from "../../../src/prompts/table.ts";
import { readRunInput, writeInput } from "../../../src/runs/directory/input.ts";
import { planRun } from "../../../src/runs/plan/plan.ts";
import { readPromptFiles } from "../../../src/runs/plan/prompt-files.ts";
import { Spool, textOf } from "../../../src/runs/plan/spool.ts";
import { createBody } from "../../../src/runs/request.ts";
import { png } from "../../support/fake-service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const RULES = { limits: DEFAULT_LIMITS, defaultCount: 1 };

/** The pieces of a text, cut where a network or a disk may cut it. */
async function* cut(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function listOf<T>(values: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const value of values) list.push(value);
  return list;
}

async function problemsOf(pieces: () => AsyncIterable<Uint8Array>, name: string): Promise<readonly string[]> {
  const cwd = await tempDir();
  const whole: Uint8Array[] = [];
  for await (const piece of pieces()) whole.push(piece);
  await writeFile(join(cwd, name), Buffer.concat(whole));
  const error = await readPromptFiles([{ name, cwd, stdin: pieces }], RULES).catch((reason) => reason);
  return (error as ImgbatchError).details ?? [];
}

it("lines are the same wherever the bytes are cut", async () => {
  const bytes = Buffer.from('\ufeff{"prompt":"é🐈"}\r\n\n{"prompt":"b"}\nlast');
  const cuts = [1, 2, 3, 7, 1000];
  const found = await Promise.all(cuts.map((size) => listOf(readLines(cut(bytes, size), 100))));
  for (const lines of found) expect(lines).toEqual(found[0]);
  expect(found[0]?.map(({ number, text }) => [number, text])).toEqual([
    [1, '{"prompt":"é🐈"}\r'],
    [2, ""],
    [3, '{"prompt":"b"}'],
    [4, "last"],
  ]);
});

it("a line that no request has room for is named, is not held, and the others are still checked", async () => {
  const long = async function* () {
    yield Buffer.from('{"prompt":"a"}\n{"prompt":"');
    for (let i = 0; i < 5; i++) yield Buffer.alloc(1024 * 1024, "x");
    yield Buffer.from('"}\n{}');
  };
  expect(await listOf(readLines(long(), 1024 * 1024))).toEqual([
    { number: 1, text: '{"prompt":"a"}', bytes: 14, problem: null },
    { number: 2, text: "", bytes: 5 * 1024 * 1024 + 13, problem: "is longer than 1 MiB" },
    { number: 3, text: "{}", bytes: 2, problem: null },
  ]);
  const plain = async function* () {
    yield Buffer.from("a fox\n");
    for (let i = 0; i < 5; i++) yield Buffer.alloc(1024 * 1024, "x");
    yield Buffer.from("\nan owl");
  };
  expect(await problemsOf(plain, "p.txt")).toEqual(["p.txt:2: is longer than 4 MiB"]);
});

it("[FILE-2] of very many problems the first are shown, and how many more there are", async () => {
  const lines = async function* () {
    for (let i = 0; i < 1000; i++) yield Buffer.from("{nonsense}\n");
  };
  const found = await problemsOf(lines, "p.jsonl");
  expect(found).toHaveLength(201);
  expect(found[199]).toMatch(/^p\.jsonl:200: is not valid JSON/);
  expect(found[200]).toBe("and 800 more, which are shown when these are right");
});

it("prompts that are far too long end the reading after a dozen, in this file and in those behind it", async () => {
  let read = 0;
  const long = async function* () {
    for (; read < 1000; read++) yield Buffer.from(`{"prompt":"${"word ".repeat(18_000)}"}\n`);
  };
  const source = { name: "-", cwd: await tempDir(), stdin: long };
  const error = await readPromptFiles([source, { ...source, name: "none.txt" }], RULES).catch((each) => each);
  const found = (error as ImgbatchError).details ?? [];
  expect(found).toHaveLength(13);
  expect(found[11]).toBe("<stdin>:12: prompt: has 89999 characters; at most 8000 are allowed");
  expect(found[12]).toBe("the lines behind it were not read: make all prompts short enough first");
  expect(read).toBeLessThan(20);
});

it("a quote that nothing closes ends the reading of a table soon, and names where it began", async () => {
  let pieces = 0;
  const endless = async function* () {
    yield Buffer.from('prompt\nok\n"open\n');
    for (; pieces < 1000; pieces++) yield Buffer.from(`${"x".repeat(99_999)}\n`);
  };
  const problems: unknown[] = [];
  const read = readTable(",", 1024 * 1024)(
    readLines(endless(), 1e6),
    (...problem) => problems.push(problem),
    { isTaken: () => true },
    () => {},
  );
  expect((await listOf(read)).map((row) => row.line)).toEqual([2]);
  expect(problems).toEqual([[3, null, 'is longer than 1 MiB: a quoted cell is not closed; end it with "']]);
  expect(pieces).toBeLessThan(20);
});

it("prompts and inline images beyond what may be in memory come back as they were, under no name", async () => {
  const folder = await tempDir();
  vi.stubEnv("TMPDIR", folder);
  const spool = new Spool(100);
  const prompts = Array.from({ length: 20 }, (_, i) => `${i} "é🐈"\n${"x".repeat(i + 1)}`);
  const images = prompts.map((prompt) => png(prompt));
  const lines = prompts.map((prompt, i) => ({
    prompt,
    reference_images: [{ mime_type: "image/png", data: images[i]?.toString("base64") }],
  }));
  const stdin = async function* () {
    for (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`);
  };
  const items = await readPromptFiles([{ name: "-", cwd: folder, stdin }], RULES, spool);
  expect(readdirSync(folder)).toEqual([]);
  expect(items.filter(({ prompt }) => typeof prompt !== "string").length).toBeGreaterThan(10);
  expect(items.map(({ prompt }) => textOf(prompt))).toEqual(prompts);
  for (const [i, { references }] of items.entries()) {
    const [reference] = references;
    if (reference === undefined || !("kept" in reference.source)) throw new Error("not kept");
    expect(reference.source.kept.read()).toEqual(images[i]);
  }
});

it("a run of prompts that were put aside has the keys, the request and the files of the same run in memory", async () => {
  const lines = Array.from({ length: 7 }, (_, i) => ({
    prompt: `${i} "é🐈" ${"long ".repeat(100)}`,
    ...(i === 3 ? { output_count: 3, custom_id: "three" } : {}),
    ...(i === 5
      ? { reference_images: [{ mime_type: "image/png", data: png("r").toString("base64"), id: "i" }] }
      : {}),
  }));
  const stdin = async function* () {
    for (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`);
  };
  const head = { model: "m", name: null, parentId: null, mimeType: "image/png", metadata: null } as const;
  const [near, far] = await Promise.all(
    [new Spool(), new Spool(10)].map(async (spool) => {
      const dir = await tempDir();
      const items = await readPromptFiles([{ name: "-", cwd: dir, stdin }], RULES, spool);
      const plan = planRun({ ...head, items }, { ...DEFAULT_LIMITS, itemsPerBatch: 4 });
      await writeInput(dir, plan.items);
      const bodies: string[] = [];
      for (const chunk of plan.chunks) {
        const body = createBody(dir, plan.request, chunk.items);
        if (typeof body === "string") bodies.push(body);
        else {
          const whole = Buffer.concat(await listOf(body.open()));
          expect(whole.length).toBe(body.bytes);
          bodies.push(whole.toString());
        }
      }
      const keys = [plan.inputSha256, ...plan.chunks.map((chunk) => chunk.contentKey)];
      return { dir, keys, bodies, input: await readFile(join(dir, "input.jsonl"), "utf8") };
    }),
  );
  expect(far?.keys).toEqual(near?.keys);
  expect(far?.bodies).toEqual(near?.bodies);
  expect(far?.input).toBe(near?.input);
  expect(near?.bodies.map((body) => JSON.parse(body).items.length)).toEqual([4, 3]);
});

it("the input of a run is read from its place on disk: by image, in order, and never the wrong line", async () => {
  const dir = await tempDir();
  const path = `references/${"0".repeat(64)}`;
  const source = { file: "p.jsonl", line: 1 };
  const written = (line: object) => {
    const digest = createHash("sha256").update(JSON.stringify(line)).digest("hex").slice(0, 16);
    return JSON.stringify({ ...line, digest });
  };
  const text = [
    written({ custom_id: "a", prompt: "é🐈", source }),
    "damaged",
    written({ custom_id: "b", prompt: "two", output_count: 2, reference_images: [{ path }], source }),
    written({ custom_id: "c", prompt: "last", source }),
  ].join("\n");
  const bytes = Buffer.from(`\ufeff${text}`);
  // Neither a mark at the beginning nor a byte that is no UTF-8 moves the lines behind it.
  bytes[bytes.indexOf("damaged")] = 0xff;
  await writeFile(join(dir, "input.jsonl"), bytes);
  const input = await readRunInput(dir);
  expect([...input.keys()]).toEqual(["a", "b_01", "b_02", "c"]);
  expect(input.get("a")).toEqual({ custom_id: "a", prompt: "é🐈", source });
  expect(input.get("b_02")).toEqual({
    custom_id: "b_02",
    prompt: "two",
    reference_images: [{ path }],
    source,
  });
  expect(input.get("c")?.prompt).toBe("last");
  expect(input.damage).toMatch(/input\.jsonl:2 is not valid UTF-8/);
  expect([0, 1, 2, 3].map((position) => input.at(position)?.custom_id)).toEqual(["a", "b", "c", undefined]);
  expect([input.has("b"), input.get("b")]).toEqual([false, undefined]);
  expect([...(await readRunInput(join(dir, "none"))).keys()]).toEqual([]);
  await writeFile(join(dir, "input.jsonl"), "");
  expect(input.get("a")).toBeUndefined();
});
