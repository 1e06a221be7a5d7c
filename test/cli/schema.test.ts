import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { parse as parseJsonc } from "jsonc-parser";
import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { checkRow } from "../../src/prompts/check-row.ts";
import { createCli } from "../support/cli.ts";
import { createInProcessCli, runInProcess } from "../support/cli-in-process.ts";

const TEMPLATES = join(import.meta.dirname, "../../templates");

async function validatorOf(name: string) {
  const { code, stdout } = await runInProcess(["schema", name], { cwd: TEMPLATES });
  expect(code).toBe(0);
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, validateFormats: false });
  return ajv.compile(JSON.parse(stdout));
}

const jsonl = (text: string) =>
  text
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));

describe("imgbatch schema", () => {
  it("[SCHEMA-1] prompts: takes what submit takes, and refuses what it refuses", async () => {
    const validate = await validatorOf("prompts");
    for (const line of jsonl(await readFile(join(TEMPLATES, "prompts.jsonl"), "utf8")))
      expect(validate(line)).toBe(true);
    const rows: [boolean, object][] = [
      [
        true,
        {
          prompt: "x",
          custom_id: null,
          output_count: 4,
          reference_images: ["a.png", { path: "b", id: "1" }],
        },
      ],
      [true, { prompt: "x", reference_images: [{ data: "AA==", mime_type: "image/png", type: "style" }] }],
      [true, { prompt: "😀".repeat(8000) }],
      [false, {}],
      [true, { prompt: "\n two\nlines ", custom_id: "..a b.png" }],
      [false, { prompt: "" }],
      [false, { prompt: "   " }],
      [false, { prompt: "\t\n\u00a0\ufeff" }],
      [false, { prompt: "a\0b" }],
      ...["a/b", "a\\b", ".", "..", "", "a\nb", "a\n", "\u0085", "x".repeat(129)].map(
        (custom_id): [boolean, object] => [false, { prompt: "x", custom_id }],
      ),
      [false, { prompt: "x".repeat(8001) }],
      [false, { promt: "x" }],
      [false, { prompt: "x", output_count: 5 }],
      [false, { prompt: "x", reference_images: [{ path: "a", data: "AA==" }] }],
      [false, { prompt: "x", reference_images: [{}] }],
    ];
    for (const [isRight, row] of rows) {
      const problems: string[] = [];
      const rules = { limits: DEFAULT_LIMITS, defaultCount: 1 };
      checkRow(row as Record<string, unknown>, rules, (_, message) => problems.push(message));
      expect([row, validate(row), problems.length === 0]).toEqual([row, isRight, isRight]);
    }
  });

  it("[SCHEMA-1] config: takes the template, an empty file, and refuses unknown keys", async () => {
    const validate = await validatorOf("config");
    const template = await readFile(join(TEMPLATES, "imgbatch.config.json"), "utf8");
    expect(validate(parseJsonc(template, [], { allowTrailingComma: true }))).toBe(true);
    expect(validate({})).toBe(true);
    expect(validate({ $schema: "x", models: [{ id: "m", prices: { "1K": 0.1 } }] })).toBe(true);
    expect(validate({ server: { prot: 1 } })).toBe(false);
    expect(validate({ providers: [{ preset: "google", concurrency: 8 }] })).toBe(true);
    expect(validate({ providers: [{ preset: "gogle" }] })).toBe(false);
    expect(
      validate({ providers: [{ name: "own", type: "openai", baseUrl: "http://a", concurency: 8 }] }),
    ).toBe(false);
  });

  it("[SCHEMA-1] config: describes every key", async () => {
    const { stdout } = await runInProcess(["schema", "config"], { cwd: TEMPLATES });
    const lacking: string[] = [];
    let seen = 0;
    const walk = (node: unknown, path: string): void => {
      if (typeof node !== "object" || node === null) return;
      const {
        properties = {},
        anyOf,
        oneOf,
        allOf,
        items,
        additionalProperties,
        $defs = {},
      } = node as Record<string, object>;
      for (const [name, value] of Object.entries(properties)) {
        seen++;
        if (!("description" in value)) lacking.push(`${path}${name}`);
        walk(value, `${path}${name}.`);
      }
      for (const each of [anyOf, oneOf, allOf].flatMap((list) => Object.values(list ?? {}))) walk(each, path);
      for (const each of [items, additionalProperties, ...Object.values($defs)]) walk(each, path);
    };
    walk(JSON.parse(stdout), "");
    expect(lacking).toEqual([]);
    expect(seen).toBeGreaterThan(200);
  });

  it("[SCHEMA-1] catalogue: takes a vendor's file, and refuses unknown keys", async () => {
    const validate = await validatorOf("catalogue");
    const google = JSON.parse(
      await readFile(join(TEMPLATES, "../src/providers/catalogue/google.json"), "utf8"),
    );
    expect([validate(google), validate.errors]).toEqual([true, null]);
    expect(validate({ ...google, modells: [] })).toBe(false);
  });

  it("[SCHEMA-1] result: takes every line that a run writes", async () => {
    const validate = await validatorOf("result");
    const cli = await createCli({ failing: /bad/ });
    await cli.here(["submit", "-", "--output", "out"], { stdin: '{"prompt":"good"}\n{"prompt":"bad"}\n' });
    const lines = jsonl(await readFile(join(cli.cwd, "out/results.jsonl"), "utf8"));
    expect(lines).toHaveLength(2);
    for (const line of lines) expect([line, validate(line), validate.errors]).toEqual([line, true, null]);
    expect(validate({ ...lines[0], files: [{ path: 1 }] })).toBe(false);
  });

  it("[SCHEMA-1] result: takes every line of generate --file too, failed and not asked for as well", async () => {
    const validate = await validatorOf("result");
    const cli = await createInProcessCli();
    cli.fake.always(/bad/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
    cli.fake.always(/poor/, {
      status: 402,
      body: { error: { code: 402, message: "no money", status: "FAILED_PRECONDITION" } },
    });
    const prompts = ["good", "bad", "poor", "never"].map((prompt) => `${JSON.stringify({ prompt })}\n`);
    const args = ["generate", "--file", "-", "-o", "out", "-j", "1"];
    expect((await cli.run(args, { stdin: prompts.join("") })).code).not.toBe(0);
    const lines = jsonl(await readFile(cli.path("out/results.jsonl"), "utf8"));
    expect(new Set(lines.map(({ status }) => status))).toEqual(new Set(["success", "failed", "pending"]));
    for (const line of lines) expect([line, validate(line), validate.errors]).toEqual([line, true, null]);
    const { model_version: _, ...bare } = lines[0];
    expect(validate(bare)).toBe(false);
  });

  it("[SCHEMA-1] event: takes every line of --events of a run", async () => {
    const validate = await validatorOf("event");
    const cli = await createCli({ failing: /bad/ });
    const prompts = '{"prompt":"good"}\n{"prompt":"bad"}\n';
    const { stdout } = await cli.here(["submit", "-", "--output", "out", "--events", "-"], {
      stdin: prompts,
    });
    const lines = jsonl(stdout);
    expect(lines.map(({ event }) => event)).toEqual(
      expect.arrayContaining(["run_planned", "file_saved", "run_ended"]),
    );
    for (const line of lines) expect([line, validate(line), validate.errors]).toEqual([line, true, null]);
    expect(validate({ ...lines[0], event: "run_begun" })).toBe(false);
    expect(validate({ ...lines[0], schema_version: 2 })).toBe(false);
  });

  it("openapi prints the description of the API; no name prints the names; a wrong one is exit 2", async () => {
    const cli = await createCli();
    expect((await cli.here(["schema", "openapi"])).json()).toMatchObject({ openapi: "3.1.0" });
    expect((await cli.here(["schema"])).stdout.trim().split("\n")).toEqual([
      ...["prompts", "config", "catalogue", "result", "event", "openapi"],
    ]);
    expect((await cli.here(["schema", "propmts"])).code).toBe(2);
  });
});
