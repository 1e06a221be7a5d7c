import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createCli } from "../support/cli.ts";

const PROMPTS = `${["a cat", "a bad dog", "a hen"].map((prompt) => JSON.stringify({ prompt })).join("\n")}\n`;
const submit = ["submit", "-", "--output", "out"];

describe("the reports of submit", () => {
  it("[REPORT-13] writes the contact sheet always, and what --junit and --markdown name", async () => {
    const cli = await createCli({ failing: /bad/ });
    const { code, stdout } = await cli.run([...submit, "--junit", "j.xml", "--markdown", "m.md"], {
      stdin: PROMPTS,
    });
    expect({ code, stdout }).toEqual({ code: 4, stdout: "out\n" });
    const read = (name: string) => readFile(join(cli.cwd, name), "utf8");
    expect(await read("out/index.html")).toContain("1 image failed");
    expect(await read("j.xml")).toContain('tests="3" failures="1"');
    expect(await read("m.md")).toContain("**1 failed**");
  });

  it("[REPORT-13] --no-gallery leaves the contact sheet out", async () => {
    const cli = await createCli();
    await cli.run([...submit, "--no-gallery"], { stdin: PROMPTS });
    await expect(readFile(join(cli.cwd, "out/index.html"))).rejects.toThrow("ENOENT");
  });

  it("[REPORT-13] a report that was asked for and cannot be written is exit 9; a contact sheet is only missed", async () => {
    const cli = await createCli();
    const refused = await cli.run([...submit, "--junit", "no/such/place.xml"], { stdin: PROMPTS });
    expect(refused.code).toBe(9);
    await mkdir(join(cli.cwd, "other/index.html"), { recursive: true });
    const missed = await cli.run(["submit", "-", "--output", "other"], { stdin: PROMPTS });
    expect(missed.code).toBe(0);
    expect(missed.stderr).toContain("could not write the contact sheet");
  });

  it("[REPORT-13] in GitHub Actions there are annotations on stderr, a summary and outputs; elsewhere none", async () => {
    const cli = await createCli({ failing: /bad/ });
    const [summary, output] = [join(cli.cwd, "summary"), join(cli.cwd, "output")];
    const files = { GITHUB_STEP_SUMMARY: summary, GITHUB_OUTPUT: output };
    expect((await cli.run(submit, { stdin: PROMPTS, env: files })).stderr).not.toContain("::error");
    await expect(readFile(output)).rejects.toThrow("ENOENT");
    const { stdout, stderr } = await cli.run(submit, {
      stdin: PROMPTS,
      env: { ...files, GITHUB_ACTIONS: "true" },
    });
    expect(stdout).toBe("out\n");
    expect(stderr).toMatch(/^::error title=.+::.+$/m);
    expect(await readFile(summary, "utf8")).toContain("**1 failed**");
    expect(await readFile(output, "utf8")).toMatch(/fail_count<<(\w+)\n1\n\1\n/);
  });
});
