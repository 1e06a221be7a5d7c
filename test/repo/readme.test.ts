import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { EXIT_CODES } from "../../src/contract/errors.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const readme = readFileSync(resolve(ROOT, "README.md"), "utf8");
const contributing = readFileSync(resolve(ROOT, ".github/CONTRIBUTING.md"), "utf8");
const packageJson = JSON.parse(readFileSync(resolve(ROOT, "package.json"), "utf8"));

describe("CONTRIBUTING", () => {
  it("[REPO-6] gives a reason for each dependency, and for nothing else", () => {
    const section = contributing.slice(contributing.indexOf("## Why each dependency"));
    const named = [...section.matchAll(/^\| ([a-z0-9.@/-]+) \|/gm)].map((match) => match[1]);
    expect(named.filter((name) => name !== "package")).toEqual(Object.keys(packageJson.dependencies).sort());
  });
});

describe("the README", () => {
  it("[REPO-6] has the exit codes of the one table", () => {
    const rows = [...readme.matchAll(/^\| (\d+) \| (.+) \| (.+) \|$/gm)].map((match) => match.slice(1, 4));
    const codes = Object.values(EXIT_CODES).map(({ code, meaning, rerun }) => [String(code), meaning, rerun]);
    expect(rows).toEqual(codes);
  });

  it("[REPO-6] lists every command", async () => {
    const names = (await loadCommands()).flatMap(
      ({ name, commands }) => commands?.map((c) => `${name} ${c.name}`) ?? [name],
    );
    expect(names.filter((name) => !readme.includes(`| \`imgbatch ${name}`))).toEqual([]);
  });
});

describe("the page about the source", () => {
  it("[REPO-6] names only files that exist", () => {
    const page = readFileSync(resolve(ROOT, "src/README.md"), "utf8");
    const named = [...page.matchAll(/`((?:[a-z-]+\/)+[a-zA-Z.-]+)`/g)].map((match) => match[1] ?? "");
    expect(named.length).toBeGreaterThan(20);
    expect(
      named.filter((path) => !existsSync(resolve(ROOT, "src", path)) && !existsSync(resolve(ROOT, path))),
    ).toEqual([]);
  });
});
