import { existsSync } from "node:fs";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { expect, it, vi } from "vitest";
import { EXIT_CODES } from "../../src/contract/errors.ts";
import { findPreset } from "../../src/providers/catalogue/catalogue.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const skill = await readFile(resolve(import.meta.dirname, "../../templates/skill/SKILL.md"), "utf8");
const SKILL = "skills/imgbatch/SKILL.md";

/** The text of each block in a language. */
const blocks = (language: string) =>
  [...skill.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text = ""]) => text);

/** The words of a command, without its comment. */
const wordsOf = (command: string) =>
  [...command.replace(/ +#.*/, "").matchAll(/"([^"]*)"|(\S+)/g)].map(
    ([, quoted, plain]) => quoted ?? plain ?? "",
  );

/** Every command of the skill, in its order: lines of blocks, and those within a sentence. */
const COMMANDS = [...skill.matchAll(/^imgbatch .*$|`imgbatch [^`]+`/gm)].map(([text]) =>
  wordsOf(text.replaceAll("`", "")).slice(1),
);

it("[SKILL-1] every command of the skill works, in its order", async () => {
  const [cwd, data] = [await tempDir(), await tempDir()];
  for (const name of ["BASE_URL", "API_KEY"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("IMGBATCH_DATA", data);
  vi.stubEnv("GEMINI_API_KEY", "a-key-for-the-skill");
  const models = findPreset("google")?.models.map(({ id }) => ({ id, prices: { "1K": 0 } }));
  const config = { models, providers: [{ preset: "google", free: true }] };
  await startTestService({ data, config, providers: [new FakeProvider()] });
  await writeFile(join(cwd, "prompts.jsonl"), blocks("jsonl")[0] ?? "");

  const names = new Set<string>();
  for (const [name = "", ...args] of COMMANDS) {
    names.add(name);
    if (name === "serve") {
      const [more, env] = [
        ["--port", "0", "--data", await tempDir()],
        cleanEnvironment({ GEMINI_API_KEY: "a-key-for-the-skill" }),
      ];
      const { line } = startNode([BIN, name, ...args, ...more], { cwd, env });
      expect(JSON.parse(await line())).toMatchObject({ event: "ready" });
      continue;
    }
    const { code, stdout, stderr } = await runInProcess([name, ...args], { cwd });
    expect({ name, args, code, stderr }).toMatchObject({ code: 0 });
    if (args.includes("--json")) expect(JSON.parse(stdout)).toMatchObject({ ok: true });
  }
  expect([...names].sort()).toEqual(
    [
      "--help",
      "generate",
      "items",
      "models",
      "pack",
      "ready",
      "retry",
      "schema",
      "serve",
      "status",
      "submit",
    ].sort(),
  );
  for (const file of ["prompts-images/images/fox.png", "prompts-images.zip", "fox.png"])
    expect([file, existsSync(join(cwd, file))]).toEqual([file, true]);
});

it("[SKILL-1] the skill is short, and has the exit codes of the one table", () => {
  expect(skill.split("\n").length).toBeLessThanOrEqual(150);
  const rows = [...skill.matchAll(/^\| (\d+) \| (.+) \| (.+) \|$/gm)].map((match) => match.slice(1, 4));
  expect(rows).toEqual(
    Object.values(EXIT_CODES).map(({ code, meaning, rerun }) => [String(code), meaning, rerun]),
  );
  expect(skill).toMatch(/^---\nname: imgbatch\ndescription: .{1,1000}\n---\n/);
});

it("[SKILL-2] init writes the skill, adds three lines to AGENTS.md, and changes nothing else", async () => {
  const cwd = await tempDir();
  const init = (...args: string[]) => runInProcess(["init", "--template", "agent", ...args], { cwd });
  const read = (name: string) => readFile(join(cwd, name), "utf8");
  expect(await init()).toMatchObject({ code: 0, stdout: `.agents/${SKILL}\nAGENTS.md\n` });
  expect(await read(`.agents/${SKILL}`)).toBe(skill);
  const lines = await read("AGENTS.md");
  expect(lines.trimEnd().split("\n")).toHaveLength(3);
  expect(existsSync(join(cwd, ".claude"))).toBe(false);
  expect(existsSync(join(cwd, "prompts.jsonl"))).toBe(false);

  // Again, with a folder of Claude Code, and rules that are there: behind a link, and without a last line break.
  await mkdir(join(cwd, ".claude"));
  expect(await init()).toMatchObject({ code: 0, stdout: `.claude/${SKILL}\n` });
  expect(await read(`.claude/${SKILL}`)).toBe(skill);
  expect(await read("AGENTS.md")).toBe(lines);
  await writeFile(join(cwd, "CLAUDE.md"), "Use tabs.");
  const other = join(cwd, "other");
  await mkdir(other);
  await symlink("../CLAUDE.md", join(other, "AGENTS.md"));
  expect((await runInProcess(["init", "other", "--template", "agent"], { cwd })).code).toBe(0);
  expect(await read("CLAUDE.md")).toBe(`Use tabs.\n\n${lines}`);
  expect((await init("--force", "--json")).json()).toMatchObject({
    written: [`.agents/${SKILL}`, `.claude/${SKILL}`],
    kept: [],
  });
  expect(await read("AGENTS.md")).toBe(lines);
});
