import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { writeReports } from "../../../src/runs/reports/write-reports.ts";
import { CHARACTER } from "../../support/characters.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { HOSTILE, reportOf } from "../../support/report.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { readXml, type XmlElement } from "../../support/xml.ts";

const error = { code: "A_CODE", message: "why, 100%\r\nnext: line" };

/** Writes all reports of images that need not be on disk, and reads them again. */
async function written(...report: Parameters<typeof reportOf>) {
  const dir = await tempDir();
  const [junit, markdown] = [join(dir, "junit.xml"), join(dir, "out.md")];
  const actions = { summary: join(dir, "summary"), output: join(dir, "output") };
  await writeFile(actions.summary, "before\n");
  await writeFile(actions.output, "other<<E\n1\nE\n");
  const annotations: string[] = [];
  await writeReports(join(dir, "out"), reportOf(...report), {
    ...{ junit, markdown, actions, gallery: false },
    ...{ loadThumbnail: async () => null, say() {}, annotate: (line) => annotations.push(line) },
  });
  const [suites, text, summary, output] = await Promise.all([
    readFile(junit, "utf8").then(readXml),
    ...[markdown, actions.summary, actions.output].map((path) => readFile(path, "utf8")),
  ]);
  const [suite] = suites.children as [XmlElement];
  const cases = suite.children.filter(({ name }) => name === "testcase");
  return { suites, suite, cases, text: text ?? "", summary, outputs: readOutputs(output ?? ""), annotations };
}

/** Reads the file of outputs as the runner does. */
function readOutputs(text: string): Record<string, string> {
  const lines = text.split("\n");
  const values: Record<string, string> = {};
  for (let i = 0; i < lines.length - 1; i++) {
    const [, name = "", end = ""] = /^(\w+)<<(.+)$/.exec(lines[i] ?? "") ?? [];
    expect(name).not.toBe("");
    const stop = lines.indexOf(end, i + 1);
    values[name] = lines.slice(i + 1, stop).join("\n");
    i = stop;
  }
  return values;
}

const many = (count: number, image: object) =>
  Array.from({ length: count }, (_, i) => ({ id: `i${i}`, ...image }));

describe("the JUnit report", () => {
  it("[REPORT-6] has a test case for each image, failures with code and message, and what the run cost", async () => {
    const { suites, suite, cases } = await written([
      { id: "fox", prompt: "a fox" },
      { id: "owl", prompt: "an owl", error },
    ]);
    expect(suites.attributes).toMatchObject({ tests: "2", failures: "1", errors: "0", time: "30.500" });
    expect(suite.attributes).toMatchObject({ tests: "2", failures: "1", timestamp: "2031-05-06T07:08:39" });
    const required = [
      "name",
      "timestamp",
      "hostname",
      "tests",
      "failures",
      "errors",
      "time",
      "id",
      "package",
    ];
    expect(Object.keys(suite.attributes)).toEqual(expect.arrayContaining(required));
    const elements = suite.children.map(({ name }) => name);
    expect(elements).toEqual(["properties", "testcase", "testcase", "system-out", "system-err"]);
    const properties = suite.children[0]?.children.map(({ attributes: { name, value } }) => [name, value]);
    expect(properties).toEqual([
      ["directory", "out"],
      ["model", "a-model"],
      ["batch_id", "imgbatch_1"],
      ["cost_usd", "0.0335"],
    ]);
    expect(cases.map(({ attributes }) => [attributes.name, attributes.classname])).toEqual([
      ["fox", "out"],
      ["owl", "out"],
    ]);
    expect(cases[0]?.children[0]?.text).toBe("a fox\n[[ATTACHMENT|out/images/fox.png]]");
    const why = `${error.code}: ${error.message}`;
    expect(cases[1]?.children).toMatchObject([
      { name: "failure", attributes: { message: why, type: error.code } },
    ]);
    expect(cases[1]?.children[0]?.text).toMatch(/^A_CODE: why[\s\S]*\nan owl$/);
  });

  it("has the notes of an image in the output of its test case", async () => {
    const facts = { notes: ["is a JPEG"] };
    const { cases } = await written([
      { id: "a", facts },
      { id: "b", error, facts },
    ]);
    expect(cases).toHaveLength(2);
    for (const each of cases) expect(each.children[0]?.text.split("\n")).toContain("is a JPEG");
  });

  it("is valid XML whatever prompts, ids and messages hold", async () => {
    const texts = fc.oneof(fc.constantFrom(...HOSTILE), fc.string({ unit: CHARACTER, maxLength: 20 }));
    const image = fc.record({ id: texts, prompt: texts, error: fc.record({ code: texts, message: texts }) });
    await fc.assert(
      fc.asyncProperty(fc.array(image, { minLength: 20, maxLength: 20 }), async (images) => {
        const distinct = images.map((each, i) => ({ ...each, id: `${i}${each.id}` }));
        expect((await written(distinct)).cases).toHaveLength(20);
      }),
      { numRuns: fuzzRuns(15) },
    );
  });
});

describe("the summary in Markdown", () => {
  it("reports how it went, then the failures with the command that retries them, then the images", async () => {
    const { text } = await written([
      { id: "fox", prompt: "a fox" },
      { id: "owl", prompt: "an owl", error },
    ]);
    expect(text).toContain("### ⚠️ out: 1 image, **1 failed**");
    expect(text).toContain("$0.03");
    expect(text).toContain("| owl | A_CODE | why, 100% next: line | an owl |");
    expect(text).toContain("```sh\nimgbatch retry out\n```");
    expect(text).toContain("| [fox](<out/images/fox.png>) |");
    expect(text.indexOf("next: line")).toBeLessThan(text.indexOf("a fox"));
  });

  it("shows success and total failure at a glance, and no retry where there is none", async () => {
    const good = (await written([{ id: "fox" }])).text;
    expect(good).toContain("### ✅ out: 1 image\n");
    expect(good).not.toMatch(/retry|notes/);
    expect((await written([{ id: "fox", error }])).text).toContain("### ❌ out: 0 images, **1 failed**");
  });

  it("shows at most 50 failures, 100 images and 20 images with notes, and counts the rest", async () => {
    const noted = many(23, { facts: { notes: ["is a JPEG", "#1"] } });
    const { text } = await written([...many(130, {}), ...many(60, { error }), ...noted]);
    expect(text.match(/^\| i\d+ \| A_CODE/gm)).toHaveLength(50);
    expect(text.match(/^\| \[i/gm)).toHaveLength(100);
    expect(text.match(/^\| i\d+ \| is a JPEG; /gm)).toHaveLength(20);
    for (const more of [10, 53, 3]) expect(text).toContain(`… and ${more} more in \`results.jsonl\`.`);
  });

  it("no prompt breaks its cell, or becomes a link, a tag, a mention or a heading", async () => {
    const { text } = await written(HOSTILE.map((prompt, i) => ({ id: `i${i}`, prompt })));
    const rows = text.split("\n").filter((line) => line.startsWith("| [i"));
    expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
    expect(rows).toHaveLength(HOSTILE.length);
    for (const row of rows) {
      const cells = row.split("|").slice(1, -1);
      expect(cells).toHaveLength(3);
      expect(cells[2]).not.toMatch(/[<>@`[\]*]|(?<![a-z0-9])_|(?<!&)#(?=\d)/i);
      expect(row.length).toBeLessThan(1200);
    }
  });
});

describe("what GitHub Actions gets", () => {
  it("an annotation is one line, and points at the file and line of the prompt where they are known", async () => {
    const source = { file: "my,prompts.txt", line: 7 };
    const { annotations } = await written([
      { id: "owl", prompt: "an owl", error, source },
      { id: "a,b:c", prompt: "an owl", error, source: { file: "<stdin>", line: 7 } },
    ]);
    expect(annotations).toEqual([
      "::error file=my%2Cprompts.txt,line=7,title=owl%3A A_CODE::why, 100%25%0D%0Anext: line",
      "::error title=a%2Cb%3Ac%3A A_CODE::why, 100%25%0D%0Anext: line",
    ]);
  });

  it("there are at most ten annotations, and the last one counts the rest", async () => {
    expect((await written(many(10, { error }))).annotations).toHaveLength(10);
    const { annotations } = await written(many(25, { error }));
    expect(annotations).toHaveLength(10);
    expect(annotations.at(-1)).toContain("16 more images failed");
    expect((await written([{ id: "fine" }])).annotations).toEqual([]);
  });

  it("outputs and summary are appended to what is there, and no value can set another output", async () => {
    const directory = "a\nsuccess_count=99\nbatch_id<<E\nx\nE";
    const { summary, outputs } = await written([{ id: "fox" }, { id: "owl", error }], { directory });
    expect(summary).toMatch(/^before\n### ⚠️ /);
    const counts = { success_count: "1", fail_count: "1" };
    expect(outputs).toEqual({ other: "1", batch_id: "imgbatch_1", directory, ...counts });
  });
});
