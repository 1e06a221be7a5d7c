import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SUITE_ROOT } from "../support/global-setup.ts";
import { installPacked } from "../support/packed.ts";
import { cleanEnvironment, startNode } from "../support/processes.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);
const SDK = "test/sdk/node_modules";
const hasOpenai = existsSync(join(ROOT, SDK, "openai"));
const hasJest = existsSync(join(ROOT, SDK, "jest"));

const recipes = await readFile(join(ROOT, "templates/README.md"), "utf8");
const section = recipes.slice(
  recipes.indexOf("## Tests of your program"),
  recipes.indexOf("## Tests on real"),
);
/** The files of the recipe, by the name that stands in their first line. */
const files = new Map(
  [...section.matchAll(/^```js\n\/\/ (\S+)\n(.*?)^```/gms)].map(([, name = "", text = ""]) => [name, text]),
);
const fileOf = (name: string) => files.get(name) ?? "";

/** The project of somebody who follows the recipe, with the packed package. */
async function project(written: Record<string, string>): Promise<string> {
  const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "stranger-"));
  const beside = [
    "node_modules/vitest",
    ...(hasOpenai ? [`${SDK}/openai`] : []),
    ...(hasJest ? [`${SDK}/jest`] : []),
  ];
  await installPacked(directory, beside);
  for (const [name, text] of Object.entries(written)) await writeFile(join(directory, name), text);
  return directory;
}

async function node(directory: string, ...args: string[]) {
  const env = cleanEnvironment({ TMPDIR: directory, HOME: directory, CI: "true" });
  const done = run(process.execPath, args, { cwd: directory, env });
  return done.then(
    ({ stdout, stderr }) => ({ code: 0, text: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ code, text: stdout + stderr }),
  );
}

/** The directories of services that are left. */
const left = (directory: string) => readdirSync(directory).filter((name) => /^imgbatch-(?!0)/.test(name));

const isOver = (url: string) =>
  fetch(`${url}/healthz`).then(
    () => false,
    () => true,
  );

describe("imgbatch/test, packed and installed", { timeout: 240_000 }, () => {
  let directory: string;
  beforeAll(async () => {
    directory = await project({
      "package.json": '{"type":"module"}',
      "fox.js": fileOf("fox.js"),
      "fox.test.js": fileOf("fox.test.js"),
      // The next file of a worker.
      "owl.test.js": fileOf("fox.test.js"),
    });
  });

  afterAll(() => rm(directory, { recursive: true, force: true }));

  it.skipIf(!hasOpenai)(
    "[HELPER-1] the recipe passes in vitest as it stands, and leaves nothing behind",
    async () => {
      const { code, text } = await node(directory, "node_modules/vitest/vitest.mjs", "run");
      expect([code, text]).toEqual([0, expect.stringMatching(/Tests .*4 passed/)]);
      await expect.poll(() => left(directory)).toEqual([]);
    },
  );

  it.skipIf(!hasOpenai || !hasJest)(
    "[HELPER-1] and in jest, by require: one service for the files of a worker",
    async () => {
      // As the recipe says: `require` in the place of `import`.
      const toCommon = (text: string) =>
        text
          .replace(/^import .* from "vitest";\n/m, "")
          .replace(
            /^import (.*) from "(.*)";$/gm,
            (_, names, from) => `const ${names} = require("${from.replace(".js", ".cjs")}");`,
          )
          .replace(/^export (async function (\w+))/m, "exports.$2 = $2;\n$1");
      await writeFile(join(directory, "fox.cjs"), toCommon(fileOf("fox.js")));
      const seen = `test("seen", () => require("node:fs").appendFileSync("urls", imgbatch.url + "\\n"));`;
      for (const name of ["fox", "owl"])
        await writeFile(join(directory, `${name}.jest.cjs`), `${toCommon(fileOf("fox.test.js"))}\n${seen}`);
      const flags = ["--testMatch", "**/*.jest.cjs", "--runInBand"];
      const { code, text } = await node(directory, "node_modules/jest/bin/jest.js", ...flags);
      expect([code, text]).toEqual([0, expect.stringMatching(/Tests: +6 passed/)]);
      const urls = (await readFile(join(directory, "urls"), "utf8")).trim().split("\n");
      expect([urls.length, new Set(urls).size]).toEqual([2, 1]);
      await expect.poll(() => left(directory)).toEqual([]);
    },
  );

  it("[HELPER-2] anything else starts and stops a service, whose address is in the environment only meanwhile", async () => {
    const script = `
      import { startImgbatch } from "imgbatch/test";
      const { OPENAI_BASE_URL: before = null } = process.env;
      const service = await startImgbatch();
      const { OPENAI_BASE_URL, OPENAI_API_KEY, GEMINI_API_KEY } = process.env;
      const isThere = OPENAI_BASE_URL === service.url + "/v1" && OPENAI_API_KEY === service.key && GEMINI_API_KEY === service.key;
      await service.fail({ status: 503, text: "fox" });
      const ask = (prompt) => fetch(OPENAI_BASE_URL + "/images/generations", {
        method: "POST",
        headers: { authorization: "Bearer " + service.key, "content-type": "application/json" },
        body: JSON.stringify({ prompt }),
      });
      const statuses = [(await ask("an owl")).status, (await ask("a fox")).status];
      const paths = (await service.requests()).map(({ path }) => path);
      const wrong = await service.fail({ satus: 503 }).catch((error) => error.message);
      await service.stop();
      const isOver = await fetch(service.url).then(() => false, () => true);
      console.log(JSON.stringify({ before, isThere, statuses, paths, wrong, isOver, after: process.env.OPENAI_BASE_URL ?? null }));`;
    const { code, text } = await node(directory, "--input-type=module", "-e", script);
    expect([code, JSON.parse(text)]).toEqual([
      0,
      {
        before: null,
        isThere: true,
        statuses: [200, 503],
        paths: ["/v1/images/generations", "/v1/images/generations"],
        wrong: "imgbatch: satus: is no field of a fault; did you mean status?",
        isOver: true,
        after: null,
      },
    ]);
    expect(left(directory)).toEqual([]);
  });

  it("[HELPER-2] a service that cannot start says why, at once", async () => {
    const start = (options: string) =>
      node(
        directory,
        "-e",
        `require("imgbatch/test").startImgbatch(${options}).catch((e) => console.log(e.message))`,
      );
    const { text } = await start('{ replay: "none", vendor: "google" }');
    expect(text).toMatch(/^imgbatch has not started for the tests: error: .*none/);
    expect((await start('{ vendor: "azure" }')).text).toBe(
      'imgbatch: vendor "azure": must be google or openai\n',
    );
    expect(left(directory)).toEqual([]);
  });

  it("[HELPER-2] a worker that is killed takes its service along", async () => {
    const script = `require("imgbatch/test").startImgbatch().then(({ url }) => console.log(url)); setInterval(() => {}, 1000)`;
    const env = cleanEnvironment({ TMPDIR: directory, HOME: directory });
    const worker = startNode(["-e", script], { cwd: directory, env });
    const url = await worker.line();
    expect(await isOver(url)).toBe(false);
    worker.child.kill("SIGKILL");
    await expect.poll(() => isOver(url)).toBe(true);
    await expect.poll(() => left(directory)).toEqual([]);
    await worker.exited;
  });
});
