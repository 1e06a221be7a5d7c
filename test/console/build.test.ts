import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";

const BUILT = resolve(import.meta.dirname, "../../dist/console");

it("the files of the page are small, and the page itself has no inline code", () => {
  const assets = readdirSync(join(BUILT, "assets"));
  const sizes = assets.map((name) => gzipSync(readFileSync(join(BUILT, "assets", name))).length);
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(200_000);
  const page = readFileSync(join(BUILT, "index.html"), "utf8");
  expect([...page.matchAll(/<script\b[^>]*>/g)].map(([tag]) => tag)).toEqual([
    expect.stringMatching(/src="\.\/assets\/[\w-]+\.js"/),
  ]);
  expect(page).not.toMatch(/<style|\son\w+=|javascript:/);
});
