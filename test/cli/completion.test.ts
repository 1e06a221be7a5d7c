import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { imgbatch } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

const hasShell = (name: string) => spawnSync(name, ["-c", "exit 0"]).status === 0;
const NAMES = (await loadCommands()).map(({ name }) => name);

/** The words offered for each line; the last word of a line is the one that is being typed. */
const CASES: [string, string[]][] = [
  ["imgbatch comp", ["completion"]],
  ["imgbatch submit --jun", ["--junit"]],
  ["imgbatch submit --progress pl", ["plain"]],
  ["imgbatch --quiet admin keys cr", ["create"]],
  ["imgbatch init --template git", ["github", "gitlab"]],
  ["imgbatch list --status c", ["cancelled", "completed"]],
  ["imgbatch items --status a", ["all"]],
  ["imgbatch generate --size 2", ["2K"]],
  ["imgbatch completion z", ["zsh"]],
  ["imgbatch submit --output my-d", ["my-dir"]],
  ["imgbatch submit my-p", ["my-prompts.jsonl"]],
  ["imgbatch exec -- my-p", ["my-prompts.jsonl"]],
];

async function directory(shell: string): Promise<{ dir: string; script: string }> {
  const dir = await tempDir();
  mkdirSync(join(dir, "my-dir"));
  writeFileSync(join(dir, "my-prompts.jsonl"), "");
  const { code, stdout } = await imgbatch(["completion", shell]);
  expect(code).toBe(0);
  const script = join(dir, "completion");
  writeFileSync(script, stdout);
  return { dir, script };
}

function ask(shell: string, program: string, cwd: string): string[] {
  const { stdout, stderr } = spawnSync(shell, ["-c", program], { cwd, encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((line) => line !== "");
}

describe("imgbatch completion", () => {
  it("bash offers commands, options, their values and files", async () => {
    const { dir, script } = await directory("bash");
    const offered = (line: string) => {
      const words = line.split(" ").map((word) => `'${word}'`);
      const ask2 = `source ${script}; COMP_WORDS=(${words.join(" ")}); COMP_CWORD=${words.length - 1}; _imgbatch; printf '%s\\n' "\${COMPREPLY[@]}"`;
      return ask("bash", ask2, dir).sort();
    };
    for (const [line, words] of CASES) expect([line, offered(line)]).toEqual([line, words]);
    expect(offered("imgbatch ")).toEqual([...NAMES].sort());
  });

  it.skipIf(!hasShell("fish"))("fish offers the same", async () => {
    const { dir, script } = await directory("fish");
    const offered = (line: string) =>
      ask("fish", `source ${script}; complete -C '${line}'`, dir)
        .map((text) => (text.split("\t")[0] ?? "").replace(/\/$/, ""))
        .sort();
    for (const [line, words] of CASES) expect([line, offered(line)]).toEqual([line, words]);
  });

  it.skipIf(!hasShell("zsh"))("zsh takes the script and knows every command", async () => {
    const { dir, script } = await directory("zsh");
    const program = `autoload -Uz compinit; compinit -u -D; source ${script}; print -l \${(k)functions} | grep '^_imgbatch_'`;
    const functions = ask("zsh", program, dir);
    expect(functions).toEqual(expect.arrayContaining(NAMES.map((name) => `_imgbatch_${name}`)));
    expect(functions).toContain("_imgbatch_admin_keys_create");
  });

  it("another shell is exit 2, and says which there are", async () => {
    const { code, stderr } = await imgbatch(["completion", "tcsh"]);
    expect(code).toBe(2);
    expect(stderr).toContain("use bash, zsh, fish");
  });
});
