import { execFile } from "node:child_process";
import { cp, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { readCommandLine } from "../../src/cli/run-cli.ts";
import { tempDir } from "../support/temp-dir.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const PAGES = [
  "README.md",
  "src/cli/README.md",
  "src/service/README.md",
  "src/service/CLUSTER.md",
  "templates/README.md",
];

const read = (page: string) => readFile(resolve(ROOT, page), "utf8");

/** The shell commands of a page, a block each. */
function blocksOf(page: string): string[] {
  return [...page.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block = ""]) => block);
}

/** The words of every call of imgbatch in a block, as a shell reads them. */
function callsIn(block: string): string[][] {
  const lines = block.replaceAll("\\\n", " ").split("\n");
  const calls = lines.flatMap((line) => [
    ...line.matchAll(/(?:^|[\s(])(?:npx )?imgbatch ((?:'[^']*'|"[^"]*"|[^|&;#)'"])*)/g),
  ]);
  return calls.map(([, rest = ""]) =>
    [...rest.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
      ([, single, double, plain]) => single ?? double ?? plain ?? "",
    ),
  );
}

it("[REPO-8] every command of the documents is one that the program knows, with its options", async () => {
  const table = await loadCommands();
  const wrong: string[] = [];
  let seen = 0;
  for (const page of PAGES)
    for (const words of blocksOf(await read(page)).flatMap(callsIn)) {
      seen++;
      try {
        if (readCommandLine(words, table).kind === "help") wrong.push(`${page}: ${words.join(" ")}`);
      } catch (error) {
        wrong.push(`${page}: imgbatch ${words.join(" ")}: ${error}`);
      }
    }
  expect(wrong).toEqual([]);
  expect(seen).toBeGreaterThan(20);
});

/** The address that GitHub gives to a heading. */
const anchorOf = (heading: string) =>
  heading
    .replace(/[`*]/g, "")
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");

it("[REPO-8] every link between the documents leads to a file, and to a heading in it", async () => {
  const pages = [
    ...PAGES,
    "src/README.md",
    "src/server/README.md",
    ".github/CONTRIBUTING.md",
    "test/RULES.md",
  ];
  const wrong: string[] = [];
  let seen = 0;
  for (const page of pages) {
    const text = (await read(page)).replace(/^```.*?^```/gms, "");
    for (const [, link = ""] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^\w+:/.test(link)) continue;
      seen++;
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : join(dirname(page), path);
      const there = await stat(resolve(ROOT, target)).catch(() => null);
      const lines = there?.isFile() ? (await read(target)).split("\n") : [];
      const headings = lines.flatMap((line) => /^#+ (.+)/.exec(line)?.[1] ?? []);
      const leads = anchor === undefined || headings.map(anchorOf).includes(anchor);
      if (there === null || !leads) wrong.push(`${page}: ${link}`);
    }
  }
  expect(wrong).toEqual([]);
  expect(seen).toBeGreaterThan(40);
});

it("[REPO-8] the recipes of the README make their pictures as they are written", {
  timeout: 240_000,
}, async () => {
  const page = await read("README.md");
  const section = page.slice(page.indexOf("## Recipes"), page.indexOf("## Watch it"));
  const cwd = await tempDir();
  const bin = join(cwd, "bin");
  await mkdir(bin);
  const call = `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, "bin/imgbatch.cjs")}" "$@"\n`;
  await writeFile(join(bin, "imgbatch"), call, { mode: 0o755 });
  await cp(join(ROOT, "templates/prompts.jsonl"), join(cwd, "prompts.jsonl"));
  const script = ["imgbatch submit prompts.jsonl --output out", ...blocksOf(section)].join("\n");
  const env = { PATH: `${bin}:${process.env.PATH}`, HOME: cwd, IMGBATCH_DATA: join(cwd, "data") };
  const { stdout } = await promisify(execFile)("bash", ["-eo", "pipefail", "-c", script], { cwd, env });
  expect(stdout).toContain("http://127.0.0.1:");
  const counts = { zoo: 4, events: 2 };
  for (const [name, count] of Object.entries(counts)) {
    const lines = (await readFile(join(cwd, `${name}-images`, "results.jsonl"), "utf8")).trim().split("\n");
    expect(lines.map((line) => JSON.parse(line).status)).toEqual(Array(count).fill("success"));
  }
});
