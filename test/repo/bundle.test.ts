import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { tempDir } from "../support/temp-dir.ts";

const BUNDLE = resolve(import.meta.dirname, "../../bundle.mjs");
/** Some systems set these for every process. */
const OF_THE_SYSTEM = /^(PATH|SystemRoot|PWD|SHLVL|_|__CF_USER_TEXT_ENCODING)$/;

it("[REPO-15] the first run of a build sees no setting and no key of whoever builds", async () => {
  const directory = await tempDir();
  const seen = join(directory, "seen.json");
  const files = {
    "src/cli/main.ts": "",
    "src/processes/guard-main.ts": "",
    "bin/imgbatch.cjs": `const { env, argv } = process;
      require("node:fs").writeFileSync(${JSON.stringify(seen)}, JSON.stringify({ env, argv, cwd: process.cwd() }));`,
  };
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await writeFile(join(directory, path), text);
  }
  const settings = {
    IMGBATCH_BASE_URL: "http://a",
    IMGBATCH_API_KEY: "b",
    GEMINI_API_KEY: "c",
    NODE_OPTIONS: "",
  };
  const env = { ...process.env, ...settings };
  await promisify(execFile)(process.execPath, [BUNDLE], { cwd: directory, env });

  const run = JSON.parse(await readFile(seen, "utf8"));
  const own = Object.entries(run.env).filter(([name]) => !OF_THE_SYSTEM.test(name));
  expect(Object.fromEntries(own)).toEqual({
    HOME: run.cwd,
    USERPROFILE: run.cwd,
    APPDATA: run.cwd,
    LOCALAPPDATA: run.cwd,
  });
  expect(run.argv.slice(-2)).toEqual(["--data", "data"]);
});
