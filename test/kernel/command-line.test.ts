import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { programName, programWords } from "../../src/kernel/command-line.ts";
import { tempDir } from "../support/temp-dir.ts";

const LINK = "node_modules/.bin/imgbatch";

it("[CLI-4] names the program as it was started, for a directory where that starts it", () => {
  const words = (script: string, directory: string) => programWords(directory, script, "/home/me").join(" ");
  expect(words("/usr/bin/imgbatch", "/home/me")).toBe("imgbatch");
  expect(words(`/home/me/site/${LINK}`, "/home/me/site/pictures")).toBe("npx imgbatch");
  expect(words(`/home/me/site/${LINK}`, "/home/me/site2")).toBe(`/home/me/site/${LINK}`);
  expect(words("/home/me/site/node_modules/imgbatch/bin/imgbatch.cjs", "/home/me/site")).toBe("npx imgbatch");
  expect(words("/home/me/checkout/bin/imgbatch.cjs", "/home/me/checkout")).toBe("node bin/imgbatch.cjs");
  expect(words("/home/me/checkout/bin/imgbatch.cjs", "/home/me/checkout/src")).toBe(
    "node ../bin/imgbatch.cjs",
  );
  // It may be behind an alias.
  expect(words("/home/me/checkout/bin/imgbatch.cjs", "/home/me")).toBe("imgbatch");
  expect(words("/home/me/vitest/node_modules/.bin/vitest", "/home/me/vitest")).toBe("imgbatch");
  // This very process is a test runner, also under `npx vitest`.
  expect(programName()).toBe("imgbatch");
});

/** A directory of the cache of npx. */
async function cacheOf(facts: object): Promise<string> {
  const home = join(await tempDir(), "_npx", "0123456789abcdef");
  await mkdir(home, { recursive: true });
  await writeFile(join(home, "package.json"), JSON.stringify(facts));
  return home;
}

const given = (...packages: string[]) => ({ dependencies: { imgbatch: "^0.1.0" }, _npx: { packages } });
/** What npm 10 keeps. */
const from = (place: string) => ({ dependencies: { imgbatch: place } });

it.each([
  { facts: given("./imgbatch.tgz"), here: "./imgbatch.tgz", below: "../imgbatch.tgz" },
  { facts: given("imgbatch.tgz"), here: "imgbatch.tgz", below: "../imgbatch.tgz" },
  { facts: given("imgbatch@0.1.0"), here: "imgbatch@0.1.0", below: "imgbatch@0.1.0" },
  { facts: given("/home/me"), here: "imgbatch", below: "imgbatch" },
  { facts: given("/home/checkout"), here: "/home/checkout", below: "/home/checkout" },
  { facts: given("sharp", "imgbatch"), here: "imgbatch", below: "imgbatch" },
  { facts: from("file:/home/me/imgbatch.tgz"), here: "./imgbatch.tgz", below: "../imgbatch.tgz" },
  { facts: from("file:/home/me"), here: "imgbatch", below: "imgbatch" },
  { facts: from("^0.1.0"), here: "imgbatch", below: "imgbatch" },
  {
    facts: from("https://x.test/imgbatch.tgz"),
    here: "https://x.test/imgbatch.tgz",
    below: "https://x.test/imgbatch.tgz",
  },
])("[CLI-4] names what npx was given: $facts", async ({ facts, here, below }) => {
  const script = join(await cacheOf(facts), LINK);
  const words = (directory: string) => programWords(directory, script, "/home/me");
  expect([words("/home/me"), words("/home/me/site")]).toEqual([
    ["npx", here],
    ["npx", below],
  ]);
});

it("[CLI-4] repeats no address that may hold a password", async () => {
  const address = "https://me:secret@example.com/imgbatch.tgz";
  for (const facts of [given(address), from(address)]) {
    const script = join(await cacheOf(facts), LINK);
    expect(programWords("/home/me", script, "/home/me")).toEqual([script]);
  }
});
