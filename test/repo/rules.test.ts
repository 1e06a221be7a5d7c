import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const TEST = resolve(import.meta.dirname, "..");
const RULE_ID = /\[([A-Z]+-\d+)\]/g;

/** The ids in the table, in its order. */
const listed = [...readFileSync(join(TEST, "RULES.md"), "utf8").matchAll(/^\| ([A-Z]+-\d+) \|/gm)].map(
  (match) => match[1] ?? "",
);
const table = new Set(listed);

/** Rule id → the test files whose test names cite it. */
const cited = new Map<string, string[]>();
for (const file of readdirSync(TEST, { recursive: true, encoding: "utf8" })
  .filter((name) => /\.test\.tsx?$/.test(name) && !name.includes("node_modules"))
  .sort()) {
  const names = readFileSync(join(TEST, file), "utf8").matchAll(RULE_ID);
  for (const id of new Set([...names].map((match) => match[1] ?? ""))) {
    cited.set(id, [...(cited.get(id) ?? []), file]);
  }
}

describe("the table of promises", () => {
  it("lists every promise once, and each is proved by a test", () => {
    expect(listed.filter((id, index) => listed.indexOf(id) !== index)).toEqual([]);
    expect(listed.filter((id) => !cited.has(id))).toEqual([]);
    expect([...cited.keys()].filter((id) => !table.has(id))).toEqual([]);
  });

  it("tests cite rules, the code does not", () => {
    const src = resolve(TEST, "../src");
    const citing = readdirSync(src, { recursive: true, encoding: "utf8" })
      .filter((name) => /\.tsx?$/.test(name))
      .filter((name) => / Rules?: [A-Z]+-\d/.test(readFileSync(join(src, name), "utf8")));
    expect(citing).toEqual([]);
  });
});
