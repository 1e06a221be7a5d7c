import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { readCommandLine } from "../../src/cli/run-cli.ts";
import { cleanEnvironment } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** The YAML library of the OpenAPI validator. */
const { parse } = createRequire(import.meta.resolve("@seriousme/openapi-schema-validator"))("yaml");

const ROOT = resolve(import.meta.dirname, "../..");
const read = (path: string) => readFile(resolve(ROOT, path), "utf8");

/** Runs a shell step as GitHub does. */
const step = async (script: string, cwd: string, env: Record<string, string>) =>
  promisify(execFile)("bash", ["-eo", "pipefail", "-c", script], { cwd, env: cleanEnvironment(env) }).then(
    (done) => ({ code: 0, ...done }),
    (error) => error,
  );

/** The outputs of a step, in both forms that the runner reads. */
const outputsOf = (text: string) =>
  Object.fromEntries([
    ...[...text.matchAll(/^(\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
    ...[...text.matchAll(/^(\w+)<<(\w+)\n(.*)\n\2$/gm)].map(([, name, , value]) => [name, value]),
  ]);

it("[RELEASE-1] the action makes the images once, keeps what it has made, and sets its outputs", async () => {
  const { runs, inputs, outputs } = parse(await read(".github/actions/imgbatch/action.yml"));
  expect(Object.keys(inputs)).toEqual(["prompts", "upstream", "max-cost", "args"]);
  const [install, make] = runs.steps.filter(({ run = null }) => run !== null);
  const cwd = await tempDir();
  await mkdir(join(cwd, "bin"));
  await writeFile(join(cwd, "bin/npm"), '#!/bin/sh\necho "$@" > npm-called\n', { mode: 0o755 });
  const action = join(ROOT, ".github/actions/imgbatch");
  const PATH = `${join(cwd, "bin")}:${process.env.PATH}`;
  expect((await step(install.run, cwd, { PATH, GITHUB_ACTION_PATH: action })).code).toBe(0);
  expect(await readFile(join(cwd, "npm-called"), "utf8")).toContain(
    `ci --no-audit --no-fund --prefix ${action}/`,
  );

  const output = join(cwd, "output");
  const inputVariables = { PROMPTS: "p.jsonl q.txt", UPSTREAM: "", MAX_COST: "", ARGS: "--junit a.xml" };
  expect(Object.keys(make.env)).toEqual([...Object.keys(inputVariables), "IMGBATCH_DATA"]);
  const env = {
    ...inputVariables,
    ...{ GITHUB_ACTIONS: "true", GITHUB_ACTION_PATH: action, GITHUB_OUTPUT: output, HOME: cwd },
    GITHUB_STEP_SUMMARY: join(cwd, "summary"),
    IMGBATCH_DATA: make.env.IMGBATCH_DATA,
  };
  await writeFile(join(cwd, "p.jsonl"), '{"custom_id": "fox", "prompt": "a fox"}');
  await writeFile(join(cwd, "q.txt"), "an owl\n");
  expect(await step(make.run, cwd, env)).toMatchObject({ code: 0, stdout: "images-out\n" });
  const again = await step(make.run, cwd, env);
  expect(again.stderr).toContain("nothing to fetch");
  expect(await readdir(join(cwd, "images-out/images"))).toHaveLength(2);
  expect(await readFile(join(cwd, "summary"), "utf8")).toContain("2 images");
  expect(await readFile(join(cwd, "a.xml"), "utf8")).toContain('tests="2"');
  const set = outputsOf(await readFile(output, "utf8"));
  expect(Object.keys(set)).toEqual(expect.arrayContaining(Object.keys(outputs)));
  for (const [name, { value }] of Object.entries<{ value: string }>(outputs))
    expect(value).toBe(`\${{ steps.${make.id}.outputs.${name} }}`);

  const paid = { ...env, UPSTREAM: "google", MAX_COST: "1", PROMPTS: "p.jsonl", GEMINI_API_KEY: "" };
  expect(await step(make.run.replace("images-out", "paid"), cwd, paid)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining("GEMINI_API_KEY is not set"),
  });
});

it("[RELEASE-1] a tag that is not the version is no release; the file has a checksum and its repository", async () => {
  const { jobs } = parse(await read(".github/workflows/release.yml"));
  const { run } = jobs.pack.steps.find(({ id }: { id?: string }) => id === "pack");
  const cwd = await tempDir();
  await writeFile(join(cwd, "package.json"), '{"name": "imgbatch", "version": "1.2.3"}');
  const output = join(cwd, "output");
  const env = { GITHUB_OUTPUT: output, GITHUB_REPOSITORY: "owner/imgbatch", HOME: cwd };
  expect(await step(run, cwd, { ...env, GITHUB_REF_NAME: "v1.2.4" })).toMatchObject({ code: 1 });
  expect(await step(run, cwd, { ...env, GITHUB_REF_NAME: "v1.2.3" })).toMatchObject({ code: 0 });
  const { file } = outputsOf(await readFile(output, "utf8"));
  expect(file).toBe("imgbatch-1.2.3.tgz");
  const [check] = jobs.npm.steps.flatMap((each: { run?: string }) => each.run ?? []);
  const publish = `npm() { echo "$@"; }; ${check}`;
  expect((await step(publish, cwd, { FILE: file })).stdout).toBe(
    `${file}: OK\npublish ./${file} --provenance --access public\n`,
  );
  const packed = await step(`tar -xzOf ${file} package/package.json`, cwd, {});
  expect(JSON.parse(packed.stdout).repository.url).toBe("git+https://github.com/owner/imgbatch.git");
  // Nothing is published before the tests have passed.
  expect([jobs.pack.needs, jobs.npm.needs, jobs.image.needs]).toEqual(["test", "pack", "pack"]);
});

it("[RELEASE-1] the container serves as another user than root, and knows when it is ready", async () => {
  const text = (await read("templates/Dockerfile")).replaceAll("\\\n", " ");
  const wordsOf = (name: string) =>
    JSON.parse(new RegExp(`^${name}.*?(\\[.*\\])$`, "m").exec(text)?.[1] ?? "[]");
  expect(text).toMatch(/^USER node$/m);
  const [program] = wordsOf("ENTRYPOINT");
  expect(program).toBe("imgbatch");
  const command = readCommandLine(wordsOf("CMD"), await loadCommands());
  expect(command).toMatchObject({ path: "serve", options: { host: "0.0.0.0", noUi: true, graceMs: "30s" } });
  const [node, flag, script] = wordsOf("HEALTHCHECK");
  const { url } = await startTestService();
  const health = (base: string) =>
    step(`"${node}" "${flag}" "$SCRIPT"`, ROOT, { SCRIPT: script.replace("http://127.0.0.1:8787", base) });
  expect(await health(url)).toMatchObject({ code: 0 });
  expect(await health("http://127.0.0.1:1")).toMatchObject({ code: 1 });
});
