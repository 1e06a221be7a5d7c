import { existsSync, readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { EXIT_CODES } from "../../src/contract/errors.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const readme = readFileSync(resolve(ROOT, "README.md"), "utf8");
const guide = readFileSync(resolve(ROOT, "src/cli/README.md"), "utf8");
const contributing = readFileSync(resolve(ROOT, ".github/CONTRIBUTING.md"), "utf8");
const packageJson = JSON.parse(readFileSync(resolve(ROOT, "package.json"), "utf8"));

describe("CONTRIBUTING", () => {
  it("[REPO-6] gives a reason for each package that the program is made of, and for nothing else", () => {
    const section = contributing.slice(contributing.indexOf("## Why each dependency"));
    const named = [...section.matchAll(/^\| ([a-z0-9.@/-]+) \|/gm)].map((match) => match[1]);
    const sources = readdirSync(resolve(ROOT, "src"), { recursive: true, encoding: "utf8" });
    const used = sources
      .filter((file) => /\.tsx?$/.test(file))
      .flatMap((file) => [
        ...readFileSync(resolve(ROOT, "src", file), "utf8").matchAll(
          /(?:from |import\(|^import |url\)\.resolve\()"((?:@[\w.-]+\/)?[a-z][\w.-]*)(?:\/[^"]*)?"/gm,
        ),
      ])
      .flatMap(([, name = ""]) => name);
    expect(used.filter((name) => !named.includes(name))).toEqual([]);
    const known = Object.keys({ ...packageJson.dependencies, ...packageJson.devDependencies });
    expect(named.filter((name = "") => !["package", ...known].includes(name))).toEqual([]);
    expect(Object.keys(packageJson.dependencies)).toEqual(["better-sqlite3", "dejavu-fonts-ttf", "sharp"]);
  });
});

describe("the README", () => {
  it("[REPO-6] is an entrance of at most 150 lines, whose links and pictures exist", () => {
    expect(readme.split("\n").length).toBeLessThanOrEqual(150);
    const targets = [...readme.matchAll(/\]\(([^)#]+)(?:#([^)]+))?\)/g)];
    const missing = targets.filter(([, file = "", anchor]) => {
      if (!existsSync(resolve(ROOT, file))) return true;
      return anchor !== undefined && !anchorsOf(readFileSync(resolve(ROOT, file), "utf8")).includes(anchor);
    });
    expect(missing.map(([link]) => link)).toEqual([]);
  });
});

/** The anchors that GitHub gives the headings of a page. */
function anchorsOf(page: string): string[] {
  const headings = [...page.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => heading);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replace(/[^a-z0-9 _-]/g, "")
      .replaceAll(" ", "-"),
  );
}

describe("the guide", () => {
  it("[REPO-6] has the exit codes of the one table", () => {
    const section = guide.slice(guide.indexOf("| 0 |"));
    const rows = [...section.matchAll(/^\| (\d+) \| (.+) \| (.+) \|$/gm)].map((match) => match.slice(1, 4));
    const codes = Object.values(EXIT_CODES).map(({ code, meaning, rerun }) => [String(code), meaning, rerun]);
    expect(rows).toEqual(codes);
  });

  it("[REPO-6] lists every command", async () => {
    const names = (await loadCommands()).flatMap(
      ({ name, commands }) => commands?.map((c) => `${name} ${c.name}`) ?? [name],
    );
    expect(names.filter((name) => !guide.includes(`| \`imgbatch ${name}`))).toEqual([]);
  });
});

describe("the page about the source", () => {
  const page = readFileSync(resolve(ROOT, "src/README.md"), "utf8");

  it("[REPO-6] names only files that exist", () => {
    const named = [...page.matchAll(/`((?:[a-z-]+\/)+[a-zA-Z.-]+)`/g)].map((match) => match[1] ?? "");
    expect(named.length).toBeGreaterThan(20);
    expect(
      named.filter((path) => !existsSync(resolve(ROOT, "src", path)) && !existsSync(resolve(ROOT, path))),
    ).toEqual([]);
  });

  // Parts and narrower forms, which are declared beside a type of the list, or a type that extends them.
  const ways = [
    { of: "an item", most: 9, forms: ["CheckedContent", "LeasedItem", "MadeImage"] },
    { of: "a prompt", most: 7, forms: ["PlannedItem"] },
    { of: "a picture", most: 6, forms: [] },
  ];
  for (const { of, most, forms } of ways)
    it(`[REPO-6] lists the types of ${of}, at most ${most}, each made from one before it in the file that is named`, () => {
      const section = page.split(`## The types of ${of}\n`)[1]?.split("\n## ")[0] ?? "";
      const rows = section
        .split("\n")
        .filter((line) => line.startsWith("| `"))
        .map((line) => line.split("|").map((cell) => cell.trim().replaceAll("`", "")));
      expect(rows.length).toBeGreaterThan(5);
      expect(rows.length).toBeLessThanOrEqual(most);
      const sourceOf = (path: string) => readFileSync(resolve(ROOT, "src", path), "utf8");
      const uses = (path: string, name: string) => new RegExp(`\\b${name}\\b`).test(sourceOf(path));
      const isDeclared = (path: string, name: string) =>
        new RegExp(`^export (?:interface|type) ${name}\\b`, "m").test(sourceOf(path));
      const before: string[] = [];
      for (const [, name = "", , declared = "", made = ""] of rows) {
        expect(isDeclared(declared, name), `${declared} exports ${name}`).toBe(true);
        if (before.length > 0) {
          expect(uses(made, name), `${made} makes ${name}`).toBe(true);
          const from = before.filter((earlier) => earlier !== name && uses(made, earlier));
          expect(from, `${made} makes ${name} from a type before it`).not.toEqual([]);
        }
        before.push(name, ...forms.filter((form) => uses(declared, form)));
      }
      const named = [...section.matchAll(/`([A-Z][a-z]\w+)`/g)].map(([, name = ""]) => name);
      expect(named.filter((name) => !before.includes(name))).toEqual([]);
    });
});
