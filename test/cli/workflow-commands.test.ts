import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { withoutWorkflowCommands } from "../../src/cli/main.ts";
import { createCli } from "../support/cli.ts";

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
