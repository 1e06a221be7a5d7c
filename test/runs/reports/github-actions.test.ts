import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { annotations, writeActionsFiles } from "../../../src/runs/reports/write-reports.ts";
import { reportOf } from "../../support/report.ts";
import { tempDir } from "../../support/temp-dir.ts";

const error = { code: "A_CODE", message: "why, 100%\r\nnext: line" };

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

describe("what GitHub Actions gets", () => {
  it("an annotation points at the file and line of the prompt, where they are known", () => {
    const source = { file: "my,prompts.txt", line: 7 };
    expect(annotations(reportOf([{ id: "owl", prompt: "an owl", error, source }]))).toEqual([
      "::error file=my%2Cprompts.txt,line=7,title=owl%3A A_CODE::why, 100%25%0D%0Anext: line",
    ]);
    const stdin = { file: "<stdin>", line: 7 };
    expect(annotations(reportOf([{ id: "owl", prompt: "an owl", error, source: stdin }]))[0]).toMatch(
      /^::error title=/,
    );
  });

  it("outputs and summary are appended to what is there", async () => {
    const dir = await tempDir();
    const files = { summary: join(dir, "summary"), output: join(dir, "output") };
    await writeFile(files.summary, "before\n");
    await writeFile(files.output, "other<<E\n1\nE\n");
    await writeActionsFiles(reportOf([{ id: "fox" }, { id: "owl", error }]), files);
    expect(await readFile(files.summary, "utf8")).toMatch(/^before\n### ⚠️ out/);
    expect(readOutputs(await readFile(files.output, "utf8"))).toEqual({
      other: "1",
      batch_id: "imgbatch_1",
      directory: "out",
      success_count: "1",
      fail_count: "1",
    });
  });

  it("no value can set another output", async () => {
    const dir = await tempDir();
    const output = join(dir, "output");
    const directory = "a\nsuccess_count=99\nbatch_id<<E\nx\nE";
    await writeActionsFiles(reportOf([{ id: "fox" }], { directory }), { summary: undefined, output });
    expect(readOutputs(await readFile(output, "utf8"))).toMatchObject({ directory, success_count: "1" });
  });

  it("a failure is one annotation on one line, whatever its text", () => {
    const [line, ...more] = annotations(reportOf([{ id: "a,b:c", error }]));
    expect(more).toEqual([]);
    expect(line).toBe("::error title=a%2Cb%3Ac%3A A_CODE::why, 100%25%0D%0Anext: line");
  });

  it("there are at most ten, and the last one counts the rest", () => {
    const many = (count: number) => Array.from({ length: count }, (_, i) => ({ id: `i${i}`, error }));
    expect(annotations(reportOf(many(10)))).toHaveLength(10);
    const lines = annotations(reportOf(many(25)));
    expect(lines).toHaveLength(10);
    expect(lines.at(-1)).toContain("16 more images failed");
    expect(annotations(reportOf([{ id: "fine" }]))).toEqual([]);
  });
});
