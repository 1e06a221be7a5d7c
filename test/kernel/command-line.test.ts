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

it.each([
  { given: ["./imgbatch-0.1.0.tgz"], here: "npx ./imgbatch-0.1.0.tgz", below: "npx ../imgbatch-0.1.0.tgz" },
  { given: ["imgbatch-0.1.0.tgz"], here: "npx imgbatch-0.1.0.tgz", below: "npx ../imgbatch-0.1.0.tgz" },
  { given: ["imgbatch@0.1.0"], here: "npx imgbatch@0.1.0", below: "npx imgbatch@0.1.0" },
  { given: ["/home/me"], here: "npx imgbatch", below: "npx imgbatch" },
  { given: ["/home/checkout"], here: "npx /home/checkout", below: "npx /home/checkout" },
  { given: ["sharp", "./i.tgz"], here: "npx --package=sharp --package=./i.tgz imgbatch", below: null },
])("[CLI-4] names what npx was given: $given", async ({ given, here, below }) => {
  const home = join(await tempDir(), "_npx", "0123456789abcdef");
  await mkdir(home, { recursive: true });
  await writeFile(join(home, "package.json"), JSON.stringify({ _npx: { packages: given } }));
  const words = (directory: string) => programWords(directory, join(home, LINK), "/home/me").join(" ");
  expect(words("/home/me")).toBe(here);
  if (below !== null) expect(words("/home/me/site")).toBe(below);
});

it("[CLI-4] repeats no address that may hold a password", async () => {
  const home = join(await tempDir(), "_npx", "0123456789abcdef");
  await mkdir(home, { recursive: true });
  const packages = ["https://me:secret@example.com/imgbatch.tgz"];
  await writeFile(join(home, "package.json"), JSON.stringify({ _npx: { packages } }));
  expect(programWords("/home/me", join(home, LINK), "/home/me")).toEqual([join(home, LINK)]);
});
