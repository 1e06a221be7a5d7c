import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { withoutWorkflowCommands } from "../../src/cli/main.ts";
import { createCli } from "../support/cli.ts";
import { createInProcessCli } from "../support/cli-in-process.ts";

const PROMPTS = `${["a cat", "a bad dog", "a hen"].map((prompt) => JSON.stringify({ prompt })).join("\n")}\n`;
const submit = ["submit", "-", "--output", "out"];

describe("the reports of submit", () => {
  it("writes the contact sheet always, and what --junit and --markdown name", async () => {
    const cli = await createCli({ failing: /bad/ });
    const { code, stdout } = await cli.here([...submit, "--junit", "j.xml", "--markdown", "m.md"], {
      stdin: PROMPTS,
    });
    expect({ code, stdout }).toEqual({ code: 4, stdout: "out\n" });
    const read = (name: string) => readFile(join(cli.cwd, name), "utf8");
    expect(await read("out/index.html")).toContain("1 image failed");
    expect(await read("j.xml")).toContain('tests="3" failures="1"');
    expect(await read("m.md")).toContain("**1 failed**");
  });

  it("--no-gallery leaves the contact sheet out", async () => {
    const cli = await createCli();
    await cli.here([...submit, "--no-gallery"], { stdin: PROMPTS });
    await expect(readFile(join(cli.cwd, "out/index.html"))).rejects.toThrow("ENOENT");
  });

  it("a report that was asked for and cannot be written is exit 9; a contact sheet is only missed", async () => {
    const cli = await createCli();
    // The run itself takes the place: that is found only when the report is written.
    const args = [...submit, "--junit", "out/imgbatch.json/j.xml"];
    const refused = await cli.here(args, { stdin: PROMPTS });
    expect(refused.code).toBe(9);
    await mkdir(join(cli.cwd, "other/index.html"), { recursive: true });
    const missed = await cli.here(["submit", "-", "--output", "other"], { stdin: PROMPTS });
    expect(missed.code).toBe(0);
    expect(missed.stderr).toContain("could not write the contact sheet");
  });

  it("a report that cannot be written is reported before anything is sent; missing directories are created", async () => {
    const cli = await createCli();
    await writeFile(join(cli.cwd, "file"), "");
    for (const [flag, place] of [
      ["--junit", "file/below/j.xml"],
      ["--markdown", "."],
    ] as const) {
      const refused = await cli.here([...submit, flag, place], { stdin: PROMPTS });
      expect(refused.code).toBe(9);
      expect(refused.stderr).toContain(`error: ${flag}: Could not save ${join(cli.cwd, place)}: `);
      expect(refused.stderr).toContain(`next: name another file in ${flag}`);
    }
    expect(cli.fake.requests).toEqual([]);
    const args = [...submit, "--junit", "no/such/j.xml", "--markdown", "none/m.md"];
    expect((await cli.here(args, { stdin: PROMPTS })).code).toBe(0);
    expect(await readFile(join(cli.cwd, "no/such/j.xml"), "utf8")).toContain('tests="3"');
    expect(await readFile(join(cli.cwd, "none/m.md"), "utf8")).toContain("out: 3 images");
  });

  it("in GitHub Actions there are annotations on stderr, a summary and outputs; elsewhere none", async () => {
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

describe("a run below the root of a repository", () => {
  const place = async () => {
    const cli = await createCli({ failing: /bad/ });
    await writeFile(join(cli.cwd, "p.jsonl"), PROMPTS);
    return { cli, root: dirname(cli.cwd), below: basename(cli.cwd) };
  };

  it("has annotations from the root of GitHub's checkout on, and an output that each step can use", async () => {
    const { cli, root, below } = await place();
    const [summary, output] = [join(cli.cwd, "summary"), join(cli.cwd, "output")];
    const files = { GITHUB_STEP_SUMMARY: summary, GITHUB_OUTPUT: output, GITHUB_WORKSPACE: root };
    const env = { ...files, GITHUB_ACTIONS: "true" };
    const { stderr } = await cli.run(["submit", "p.jsonl", "--output", "out"], { env });
    expect(stderr).toMatch(new RegExp(`^::error file=${below}/p\\.jsonl,line=\\d,`, "m"));
    expect(await readFile(output, "utf8")).toContain(`\n${join(cli.cwd, "out")}\n`);
    // A link would lead to a page of GitHub that is not there.
    expect(await readFile(summary, "utf8")).not.toContain("](");
  });

  it("attaches images from the root of GitLab's project on, and links them from where the Markdown is", async () => {
    const { cli, root, below } = await place();
    const env = { GITLAB_CI: "true", CI_PROJECT_DIR: root };
    const reports = ["--junit", "j.xml", "--markdown", "doc/m.md"];
    await cli.run(["submit", "p.jsonl", "--output", "out", ...reports], { env });
    expect(await readFile(join(cli.cwd, "j.xml"), "utf8")).toContain(`[[ATTACHMENT|${below}/out/images/`);
    expect(await readFile(join(cli.cwd, "doc/m.md"), "utf8")).toContain("](<../out/images/");
  });
});

describe("the reports of other commands", () => {
  it("download writes them too, but not for a ZIP or a single image", async () => {
    const cli = await createCli({ failing: /bad/ });
    await cli.here([...submit, "--no-gallery"], { stdin: PROMPTS });
    expect((await cli.here(["download", "out", "--junit", "j.xml"])).code).toBe(4);
    expect(await readFile(join(cli.cwd, "j.xml"), "utf8")).toContain('tests="3" failures="1"');
    expect(await readFile(join(cli.cwd, "out/index.html"), "utf8")).toContain("1 image failed");
    for (const flags of [
      ["--zip", "--junit", "z.xml"],
      ["--item", "x", "--no-gallery"],
    ])
      expect((await cli.here(["download", "out", ...flags])).code).toBe(2);
  });

  it("generate --file writes them too, and names the command that makes its failed images", async () => {
    const cli = await createInProcessCli();
    cli.fake.always(/bad/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
    await writeFile(cli.path("p.jsonl"), PROMPTS);
    const generate = ["generate", "--file", "p.jsonl", "-o", "out", "--markdown", "m.md"];
    expect((await cli.run(generate)).code).toBe(4);
    expect(await readFile(cli.path("m.md"), "utf8")).toContain(
      "imgbatch generate --file out/retry.jsonl --output out-retry",
    );
    const page = await readFile(cli.path("out/index.html"), "utf8");
    expect(page).toContain("1 image failed");
    expect(page).toContain("vendorx-3.1-flash-image");
    expect((await cli.run(["generate", "a cat", "--junit", "j.xml"])).code).toBe(2);
  });

  it("retry writes them anew", async () => {
    const cli = await createCli({ failing: /bad/ });
    await cli.here(submit, { stdin: PROMPTS });
    expect((await cli.here(["retry", "out", "--include-refused", "--junit", "j.xml"])).code).toBe(4);
    expect(await readFile(join(cli.cwd, "j.xml"), "utf8")).toContain('tests="3" failures="1"');
    // Also when there is nothing to make again.
    expect((await cli.here(["retry", "out", "--junit", "k.xml"])).code).toBe(4);
    expect(await readFile(join(cli.cwd, "k.xml"), "utf8")).toContain('tests="3" failures="1"');
  });
});

/** As the runner looks for commands in a line. */
const isCommand = (line: string) => line.trimStart().startsWith("::") || line.includes("##[");

it("commands are escaped wherever the runner looks for them, and JSON stays the same", () => {
  const hostile = [
    "::error::x",
    " \t\u00a0::add-mask::x",
    "a ##[error]x",
    "###[x",
    "a::b",
    "##",
    ":",
    "a\n  ::x",
  ];
  for (const text of hostile) expect(withoutWorkflowCommands(text).split("\n").filter(isCommand)).toEqual([]);
  const document = JSON.stringify({ hostile, "::k": "\\##[" }, null, 2);
  expect(JSON.parse(withoutWorkflowCommands(document))).toEqual(JSON.parse(document));
  expect(withoutWorkflowCommands("a::b # ## x\n::")).toBe("a::b # ## x\n\\u003a:");
});

it("in GitHub Actions only annotations begin like commands; elsewhere texts are shown as they are", async () => {
  const cli = await createCli({ failing: /bad/ });
  const id = "::error title=INJECT::hello";
  const line = { custom_id: id, prompt: "a bad ##[error]x" };
  await writeFile(join(cli.cwd, "::warning::p.jsonl"), `${JSON.stringify(line)}\n`);
  const submit = ["submit", "::warning::p.jsonl", "-o", "::notice::out"];
  const env = { GITHUB_ACTIONS: "true" };
  const inActions = await cli.run(submit, { env });
  expect(inActions.code).toBe(5);
  const commands = (text: string) => text.split("\n").filter(isCommand);
  expect(commands(inActions.stdout)).toEqual([]);
  expect(commands(inActions.stderr)).toEqual([
    expect.stringMatching(/^::error file=%3A%3Awarning%3A%3Ap.jsonl,line=1,title=%3A%3Aerror title=INJECT/),
  ]);
  expect(inActions.stderr).toContain(`  \\u003a${id.slice(1)}: PROVIDER_ITEM_FAILED`);
  expect(inActions.stdout).toBe("\\u003a:notice::out\n");
  expect((await cli.run(submit)).stderr).toContain(`  ${id}: PROVIDER_ITEM_FAILED`);
  const items = await cli.run(["items", "::notice::out"], { env });
  expect(items.stdout).toContain("INJECT");
  expect(commands(items.stdout + items.stderr)).toEqual([]);
  await writeFile(join(cli.cwd, "::warning::p.jsonl"), "no JSON\n");
  const refused = await cli.run(submit, { env });
  expect(refused.code).toBe(2);
  expect(commands(refused.stderr)).toEqual([]);
});
