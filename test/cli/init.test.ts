import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, cp, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { loadConfig, parseConfig, readConfig, upstreamConfig } from "../../src/config/load.ts";
import { storagePlaces } from "../../src/config/storage-places.ts";
import { readStorageEnvironment } from "../../src/environment.ts";
import { readVersion } from "../../src/kernel/package-file.ts";
import { PRESETS } from "../../src/providers/catalogue/catalogue.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { startFakeNative } from "../support/fake-native.ts";
import { FAKE_KEY } from "../support/fake-service.ts";
import { BIN } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** The YAML library of the OpenAPI validator. */
const { parse } = createRequire(import.meta.resolve("@seriousme/openapi-schema-validator"))("yaml");

const run = promisify(execFile);
const read = (...path: string[]) => readFile(join(...path), "utf8");

const init = (dir: string, ...args: string[]) => runInProcess(["init", dir, ...args], { cwd: dirname(dir) });

/** Stands for npx, whose real one takes a second to install a package and runs in one test. */
const NPX = `#!/bin/sh
[ "$1 $2" = "--yes $IMGBATCH_PACKAGE" ] && shift 2 && exec imgbatch "$@"
`;

/** The programs that a fresh machine has, besides Node and npm. */
const PROGRAMS = ["node", "npm", "npx", "bash", "sh", "sleep"];

const found = new Map<string, string>();

async function pathOf(program: string): Promise<string> {
  const path = found.get(program) ?? (await run("bash", ["-c", `command -v ${program}`])).stdout.trim();
  found.set(program, path);
  return path;
}

/**
 * An empty directory on a fresh machine: an empty home, and in PATH nothing but `PROGRAMS` and, if wanted, `imgbatch`
 * (with `NPX` for the real one).
 * `imgbatch.tgz` is a package that is this program. It has no dependencies, so that npx installs it without a network.
 */
async function workshop({ isInstalled }: { isInstalled: boolean }) {
  const root = await tempDir();
  const inRoot = (name: string) => join(root, name);
  const [dir, bin, home, box] = [
    inRoot("project"),
    inRoot("bin"),
    inRoot("home"),
    inRoot("package"),
  ] as const;
  for (const each of [dir, bin, home, box]) await mkdir(each);
  for (const name of PROGRAMS)
    if (name === "npx" && isInstalled) await writeFile(join(bin, name), NPX, { mode: 0o755 });
    else await symlink(await pathOf(name), join(bin, name));
  const shim = `#!/usr/bin/env node\nimport ${JSON.stringify(pathToFileURL(BIN))};\n`;
  await writeFile(join(box, "imgbatch.mjs"), shim);
  const facts = { name: "imgbatch", version: "0.0.1", type: "module", bin: { imgbatch: "imgbatch.mjs" } };
  await writeFile(join(box, "package.json"), JSON.stringify(facts));
  await run("tar", ["czf", join(dir, "imgbatch.tgz"), "-C", root, "package"]);
  if (isInstalled) {
    await chmod(join(box, "imgbatch.mjs"), 0o755);
    await symlink(join(box, "imgbatch.mjs"), join(bin, "imgbatch"));
  }
  const env = { PATH: bin, HOME: home, NO_COLOR: "1", npm_config_offline: "true", npm_config_audit: "false" };
  const type = async (script: string, extra: Record<string, string> = {}, flags = "-euo pipefail") => {
    const args = [...flags.split(" "), "-c", script];
    const child = spawn(join(bin, "bash"), args, {
      cwd: dir,
      env: { ...env, ...extra },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let text = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (data) => {
        text += data;
      });
    const [code] = await once(child, "close");
    return { code, text };
  };
  return { root, dir, type };
}

/** Stands for the published package, in the variable of the templates. */
const PACKAGE = { IMGBATCH_PACKAGE: "./imgbatch.tgz" };

describe("imgbatch init", () => {
  it("[INIT-1] writes prompts and a configuration, and the two commands it names work in an empty directory", async () => {
    const { dir, type } = await workshop({ isInstalled: true });
    const { code, text } = await type("imgbatch init");
    expect(code).toBe(0);
    const next = [...text.matchAll(/^ {2}(imgbatch submit .*)$/gm)].map((match) => match[1] ?? "");
    expect(next).toEqual(["imgbatch submit prompts.jsonl --dry-run", "imgbatch submit prompts.jsonl"]);
    const [look = "", make = ""] = next;
    expect(await type(look)).toMatchObject({ code: 0, text: expect.stringContaining("12 images") });
    await keepFoxes(dir);
    expect(await type(make)).toMatchObject({ code: 0 });
    expect(await read(dir, "prompts-images/index.html")).toContain("2 images");
  });

  it("[CLI-4] what it names after npx can be pasted, also what a skill names, and the server of .mcp.json starts", async () => {
    const { dir, type } = await workshop({ isInstalled: false });
    const startsWith = async (npx: string) => {
      const { text } = await type(`${npx} init --template mcp --template agent --force`);
      expect(text).toContain(`\n  ${npx} doctor\n`);
      const { command, args } = JSON.parse(await read(dir, ".mcp.json")).mcpServers.imgbatch;
      expect(await type(`${[command, ...args].join(" ")} < /dev/null`)).toMatchObject({ code: 0 });
      const skill = await read(dir, ".agents/skills/imgbatch/SKILL.md");
      expect(skill).toContain(`\n${npx} submit prompts.jsonl `);
      expect(skill).not.toMatch(/^imgbatch |`imgbatch /m);
      await rm(join(dir, ".mcp.json"));
    };
    await startsWith("npx ./imgbatch.tgz");
    expect((await type("npx ./imgbatch.tgz lst")).text).toMatch(/^next: npx \.\/imgbatch\.tgz --help$/m);
    await type("npm install ./imgbatch.tgz");
    await startsWith("npx imgbatch");
  });

  it("[INIT-1] the configuration is commented, and says what holds without it", async () => {
    const dir = await tempDir();
    expect((await init(dir)).stdout).toBe("prompts.jsonl\nimgbatch.config.json\n");
    expect(await read(dir, "imgbatch.config.json")).toContain("//");
    expect(loadConfig({ cwd: dir })).toEqual(parseConfig({}, "defaults"));
  });

  it.each(PRESETS)(
    "--upstream $name writes its preset, commented",
    async ({ name, keyVariable, preparation, models }) => {
      const dir = await tempDir();
      const { code, stdout, stderr } = await init(dir, "--upstream", name);
      expect([code, stdout]).toEqual([0, "prompts.jsonl\nimgbatch.config.json\n"]);
      expect(readConfig({ cwd: dir }).config).toEqual(parseConfig(upstreamConfig(name), name));
      const text = await read(dir, "imgbatch.config.json");
      expect(text).toContain(`"providers": [{ "preset": "${name}" }]`);
      // Models and prices stay those of the program.
      expect(text).not.toMatch(/^ *"models"/m);
      for (const { source, prices } of models)
        if (source && Object.keys(prices).length > 0) expect(text).toContain(`  // Check them: ${source}.\n`);
      const first = keyVariable === null ? preparation : `export ${keyVariable}=<your key>`;
      const [, next] = stderr.split(`first: ${first}\n`);
      expect(next).toMatch(
        /^next:\n( {2}cd .*\n)? {2}imgbatch submit prompts.jsonl --dry-run\n {2}imgbatch submit prompts.jsonl\n$/,
      );
    },
  );

  it("--upstream keeps a configuration that is there, and refuses an unknown name", async () => {
    const dir = await tempDir();
    await writeFile(join(dir, "imgbatch.config.json"), "{}");
    expect((await init(dir, "--upstream", "google")).stderr).toContain("imgbatch.config.json exists already");
    expect(await read(dir, "imgbatch.config.json")).toBe("{}");
    const typo = await init(dir, "--upstream", "gogle");
    expect(typo.code).toBe(2);
    expect(typo.stderr).toContain("Did you mean google?");
  });

  it("keeps files that are there, links too, unless --force", async () => {
    const dir = await tempDir();
    await writeFile(join(dir, "prompts.jsonl"), "mine");
    await symlink("nowhere", join(dir, "imgbatch.config.json"));
    const kept = await init(dir, "--json");
    expect(JSON.parse(kept.stdout)).toMatchObject({
      written: [],
      kept: ["prompts.jsonl", "imgbatch.config.json"],
    });
    expect(kept.stderr).toContain("prompts.jsonl exists already");
    expect(await read(dir, "prompts.jsonl")).toBe("mine");
    expect((await init(dir, "--force")).code).toBe(0);
    expect(await read(dir, "prompts.jsonl")).toContain("custom_id");
  });

  it("says what is wrong with a template's name or a directory", async () => {
    const dir = await tempDir();
    const typo = await init(dir, "--template", "gitub");
    expect(typo.code).toBe(2);
    expect(typo.stderr).toContain("did you mean github?");
    await writeFile(join(dir, "file"), "");
    for (const place of ["file", "file/below"]) {
      const { code, stderr } = await runInProcess(["init", place], { cwd: dir });
      expect(code).toBe(2);
      expect(stderr).toContain(`"${place}" cannot be used as a directory: a file has this name.`);
      expect(stderr).toContain("next: name another directory; nothing was written");
    }
  });

  it("names the way into another directory, for a shell", async () => {
    const dir = await tempDir();
    const { stderr } = await runInProcess(["init", "my images"], { cwd: dir });
    expect(stderr).toContain("  cd 'my images'\n");
    expect((await stat(join(dir, "my images", "prompts.jsonl"))).isFile()).toBe(true);
  });
});

/** Leaves a single prompt of those that init wrote, the one of two foxes: pipelines do not differ by the number. */
async function keepFoxes(dir: string): Promise<void> {
  const lines = (await read(dir, "prompts.jsonl")).split("\n");
  await writeFile(join(dir, "prompts.jsonl"), lines.filter((line) => line.includes('"fox"')).join("\n"));
}

/** The commands of a workflow's `run` keys, one of a line or a block, with the name of their step. */
function runSteps(yaml: string): string[] {
  const lines = yaml.split("\n");
  return lines.flatMap((line, i) => {
    const [, indent = "", text = ""] = /^( *)run: (.*)$/.exec(line) ?? [];
    if (text === "") return [];
    if (text !== "|") return [text];
    const end = lines.findIndex((each, j) => j > i && each.trim() !== "" && !each.startsWith(`${indent}  `));
    return [lines.slice(i + 1, end).join("\n")];
  });
}

async function copyIfThere(from: string, to: string): Promise<void> {
  await rm(to, { recursive: true, force: true });
  if (existsSync(from)) await cp(from, to, { recursive: true });
}

async function imagesIn(dir: string): Promise<string[]> {
  return (await readdir(join(dir, "images-out/images")).catch(() => [])).sort();
}

/** The scripts of a pipeline, its variables, and what its cache keeps. */
function pipelineOf(template: "github" | "gitlab", yaml: string) {
  const pipeline = parse(yaml);
  if (template === "gitlab") {
    const { script, variables, cache, resource_group } = pipeline.images;
    expect([cache.when, resource_group]).toEqual(["always", "images"]);
    return { scripts: script as string[], env: variables, paths: cache.paths as string[] };
  }
  const { env, steps } = pipeline.jobs.images;
  expect(pipeline.concurrency).toBe("images");
  expect(env.GEMINI_API_KEY).toBe(`\${{ secrets.GEMINI_API_KEY }}`);
  const cacheStep = (kind: string) =>
    steps.find(({ uses = "" }: { uses?: string }) => uses.startsWith(`actions/cache/${kind}@`));
  const [restore, save] = [cacheStep("restore"), cacheStep("save")];
  expect(save).toMatchObject({ if: "always()", with: { key: restore.with.key, path: restore.with.path } });
  expect(restore.with.key).toBe(
    `${restore.with["restore-keys"]}\${{ github.run_id }}-\${{ github.run_attempt }}`,
  );
  const order = [restore, ...steps.filter(({ run = null }) => run !== null), save];
  expect(order.map((step) => steps.indexOf(step))).toEqual([2, 3, 4]);
  const scripts: string[] = steps.flatMap(({ run }: { run?: string }) => run ?? []);
  return {
    scripts,
    env: { IMGBATCH_DATA: env.IMGBATCH_DATA },
    paths: restore.with.path.trim().split("\n") as string[],
  };
}

describe("the templates", () => {
  it("the pipelines are YAML, and name only outputs and files that there are", async () => {
    const dir = await tempDir();
    await init(dir, "--template", "all");
    const github = parse(await read(dir, ".github/workflows/images.yml"));
    const { steps } = github.jobs.images;
    for (const step of steps) {
      expect([typeof step.run, typeof step.uses].sort()).toEqual(["string", "undefined"]);
      if (step.uses !== undefined) expect(step.uses).toMatch(/^actions\/[a-z-]+@v\d+$/);
    }
    const named = JSON.stringify(steps).matchAll(/steps\.(\w+)\.outputs\.(\w+)/g);
    const outputs = ["batch_id", "directory", "success_count", "fail_count"];
    for (const [, id, output] of named) {
      expect(steps.map((step: { id?: string }) => step.id)).toContain(id);
      expect(outputs).toContain(output);
    }
    const gitlab = parse(await read(dir, ".gitlab-ci.yml"));
    // Pull requests are checked without any secret, and make nothing.
    const check = await read(dir, ".github/workflows/images-check.yml");
    expect([parse(check).on, check.includes("secrets.")]).toEqual(["pull_request", false]);
    const checks = [...runSteps(check), ...gitlab["images-check"].script.slice(-1)];
    for (const text of checks)
      expect(text).toMatch(/ check prompts\.jsonl[\s\\]+--before \.images-before --compare images-compare/);
    expect(gitlab.images.rules[0]).toEqual({
      if: '$CI_PIPELINE_SOURCE == "merge_request_event"',
      when: "never",
    });
    const { script, artifacts } = gitlab.images;
    expect(script[0]).toContain(`--output ${artifacts.paths[0]} `);
    expect(script[0]).toContain(`--junit ${artifacts.reports.junit}`);
  });

  it("the GitHub workflow's steps run, and its last step gets the outputs of the run", async () => {
    const { dir, type } = await workshop({ isInstalled: true });
    await init(dir, "--template", "github");
    const [make = "", say = "", ...more] = runSteps(await read(dir, ".github/workflows/images.yml"));
    expect(more).toEqual([]);
    await keepFoxes(dir);
    const files = {
      GITHUB_OUTPUT: join(dirname(dir), "output"),
      GITHUB_STEP_SUMMARY: join(dirname(dir), "summary"),
    };
    const runner = {
      ...files,
      ...PACKAGE,
      GITHUB_ACTIONS: "true",
      CI: "true",
      IMGBATCH_BASE_URL: "",
      IMGBATCH_API_KEY: "",
    };
    expect(await type(make, runner, "-e")).toMatchObject({ code: 0 });
    expect(await read(files.GITHUB_STEP_SUMMARY)).toContain("2 images");
    for (const name of ["images-junit.xml", "images.md", "images-out/index.html"])
      expect((await read(dir, name)).length).toBeGreaterThan(0);
    const outputs = Object.fromEntries(
      [...(await read(files.GITHUB_OUTPUT)).matchAll(/^(\w+)<<(\w+)\n(.*)\n\2$/gm)].map(([, k, , v]) => [
        k,
        v,
      ]),
    );
    const { batch_id, directory, success_count, fail_count } = outputs;
    const env = { BATCH_ID: batch_id, DIRECTORY: directory, MADE: success_count, FAILED: fail_count };
    const said = await type(say, env as Record<string, string>, "-e");
    expect(said.text).toMatch(/^2 images in images-out, 0 failed \(imgbatch_\w+\)\n$/);
  });

  it("the GitLab job's script runs, and makes the report that the job names", async () => {
    const { dir, type } = await workshop({ isInstalled: true });
    await init(dir, "--template", "gitlab");
    await keepFoxes(dir);
    const yaml = await read(dir, ".gitlab-ci.yml");
    const commands: string[] = parse(yaml).images.script;
    expect(commands).toEqual([expect.stringMatching(/^npx /)]);
    const runner = { ...PACKAGE, CI: "true", GITLAB_CI: "true", IMGBATCH_API_KEY: "", FORCE_COLOR: "1" };
    for (const command of commands) expect(await type(command, runner)).toMatchObject({ code: 0 });
    const [, report = ""] = /junit: (.*)/.exec(yaml) ?? [];
    expect(await read(dir, report)).toContain('tests="2" failures="0"');
    expect(await read(dir, report)).toContain("[[ATTACHMENT|images-out/images/fox_01.png]]");
  });

  describe.each(["github", "gitlab"] as const)("%s with an upstream", (template) => {
    it("[INIT-2] pays only for what is new while the cache is there, for all of it once it is lost, and never above its limit", async () => {
      const fake = await startFakeNative();
      onTestFinished(() => fake.close());
      fake.models = [
        { name: "models/gemini-nano-banana-2.1", supportedGenerationMethods: ["generateContent"] },
      ];
      const provider = { preset: "google", baseUrl: fake.url, keyHeader: "authorization" };
      const cache = await tempDir();
      let prompts = "";
      /** What a pipeline does on a machine of its own. Returns the number of images that were paid for. */
      const pipeline = async () => {
        const { dir, type } = await workshop({ isInstalled: true });
        // The address of the vendor is another one here.
        await writeFile(join(dir, "imgbatch.config.json"), JSON.stringify({ providers: [provider] }));
        expect(await init(dir, "--template", template, "--upstream", "google")).toMatchObject({ code: 0 });
        const { scripts, env, paths } = pipelineOf(
          template,
          await read(dir, template === "github" ? ".github/workflows/images.yml" : ".gitlab-ci.yml"),
        );
        await writeFile(join(dir, "prompts.jsonl"), prompts);
        for (const path of paths) await copyIfThere(join(cache, path), join(dir, path));
        const before = fake.requests.length;
        const runner = { ...env, ...PACKAGE, CI: "true", GEMINI_API_KEY: `Bearer ${FAKE_KEY}` };
        let last = { code: 0, text: "" };
        for (const script of scripts) {
          expect(script).toContain("--upstream google ");
          last = await type(script, runner, "-e");
        }
        for (const path of paths) await copyIfThere(join(dir, path), join(cache, path));
        return { ...last, paid: fake.requests.length - before, images: await imagesIn(dir) };
      };

      const [fox, owl, bad] = ["fox", "owl", "bad"].map(
        (id) => `{"custom_id": "${id}", "prompt": "a ${id}"}\n`,
      );
      fake.always(/bad/, { status: 400 });
      prompts = `${fox}`;
      expect(await pipeline()).toMatchObject({ code: 0, paid: 1, images: ["fox.png"] });
      prompts = `${fox}${bad}`;
      expect(await pipeline()).toMatchObject({ code: 4, paid: 1, images: ["fox.png"] });
      // After a failure, too, the next run knows what was paid for.
      prompts = `${fox}${bad}${owl}`;
      expect(await pipeline()).toMatchObject({ code: 4, paid: 1, images: ["fox.png", "owl.png"] });
      await rm(cache, { recursive: true });
      prompts = `${fox}${owl}`;
      expect(await pipeline()).toMatchObject({ code: 0, paid: 2, images: ["fox.png", "owl.png"] });
      prompts = Array.from({ length: 200 }, (_, i) => `{"prompt": "fox ${i}"}`).join("\n");
      expect(await pipeline()).toMatchObject({ code: 8, paid: 0 });
    });
  });

  it.each([
    { template: "github", file: ".github/workflows/images.yml" },
    { template: "gitlab", file: ".gitlab-ci.yml" },
    { template: "starter", file: "imgbatch.config.json" },
  ])(
    "[INIT-3] --template $template for another upstream than the file that is here has: exit 6, and nothing is written",
    async ({ template, file }) => {
      const dir = await tempDir();
      const upstream = (name: string, ...more: string[]) =>
        init(dir, "--template", template, "--upstream", name, ...more);
      expect((await upstream("google")).code).toBe(0);
      const before = await read(dir, file);
      await rm(join(dir, "prompts.jsonl"));
      const { code, stderr } = await upstream("bfl");
      expect([code, await readdir(dir)]).toEqual([6, expect.not.arrayContaining(["prompts.jsonl"])]);
      expect(stderr).toContain(`${file} exists already and is for google, not bfl. Nothing was written.`);
      expect(stderr).toMatch(/ or move it away and run the same command again$/m);
      // It would replace the prompts, too.
      expect(stderr).not.toContain("--force");
      expect(stderr).not.toContain("BFL_API_KEY");
      expect(await upstream("google")).toMatchObject({ code: 0 });
      expect(await read(dir, file)).toBe(before);
      expect(await upstream("bfl", "--force")).toMatchObject({ code: 0 });
      expect((await upstream("bfl")).stderr).toContain("BFL_API_KEY");
      const isPipeline = template !== "starter";
      expect((await upstream("bfl")).stderr.includes("the variable IMGBATCH_PACKAGE")).toBe(isPipeline);
    },
  );

  it("a pipeline names a provider of the configuration that is here, and its key", async () => {
    const dir = await tempDir();
    const address = { type: "openai", baseUrl: "https://lab.example.com/v1" };
    const lab = { name: "lab", apiKeyEnv: "LAB_KEY", ...address };
    await writeFile(join(dir, "imgbatch.config.json"), JSON.stringify({ providers: [lab] }));
    const github = (name: string) => init(dir, "--template", "github", "--upstream", name);
    const other = await github("google");
    expect([other.code, other.stderr]).toEqual([2, expect.stringContaining("imgbatch.config.json has lab.")]);
    expect(await github("lab")).toMatchObject({ code: 0 });
    const yaml = await read(dir, ".github/workflows/images.yml");
    expect(yaml).toContain("--upstream lab ");
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what GitHub replaces.
    expect(yaml).toContain("LAB_KEY: ${{ secrets.LAB_KEY }}");
    expect(await read(dir, "imgbatch.config.json")).toBe(JSON.stringify({ providers: [lab] }));
  });

  it("an upstream of this machine has no pipeline", async () => {
    const dir = await tempDir();
    const { code, stderr } = await init(dir, "--template", "github", "--upstream", "sdapi");
    expect([code, stderr]).toEqual([2, expect.stringContaining("use an upstream with a key")]);
  });

  it("the compose file is YAML whose processes, configuration and secrets are those of the program", async () => {
    const dir = await tempDir();
    const { stderr } = await init(dir, "--template", "compose");
    const readme = (await read(dirname(BIN), "../templates/README.md")).replaceAll(/^npx /gm, "").split("\n");
    const next = [...stderr.matchAll(/^ {2}(?!cd)(.*)$/gm)].map(([, command = ""]) => command);
    expect(next).toHaveLength(5);
    const above = resolve(dirname(BIN), "..");
    expect(readme).toEqual(expect.arrayContaining(next.map((line) => line.replace(above, ".."))));
    await mkdir(join(dir, "bin"));
    await writeFile(join(dir, "bin/openssl"), "#!/bin/sh\necho secret\n", { mode: 0o755 });
    const env = { ...process.env, PATH: `${join(dir, "bin")}:${process.env.PATH}` };
    await run("sh", ["-c", next.slice(0, 2).join("\n")], { cwd: dir, env });
    const file = `imgbatch-${readVersion()}.tgz`;
    expect(await read(dir, ".env")).toBe(
      `IMGBATCH_PACKAGE=./${file}\nPGPASSWORD=secret\nAWS_SECRET_ACCESS_KEY=secret\n`,
    );
    expect((await stat(join(dir, file))).size).toBeGreaterThan(100_000);
    const { services, configs } = parse(await read(dir, "compose.yaml"), { merge: true });
    const { storage, server } = parseConfig(JSON.parse(configs.imgbatch.content), "compose.yaml");
    expect(storage).toMatchObject({ database: "postgres://imgbatch@db/imgbatch", blobs: "s3://imgbatch" });
    expect(server.trustProxy).toEqual(["uniquelocal"]);
    expect(Object.keys(services)).toEqual(
      expect.arrayContaining(["db", "s3", new URL(storage.s3.endpoint ?? "").hostname]),
    );
    for (const role of ["api", "worker"]) {
      const { command, configs: files, environment } = services[role];
      expect(command).toBe(`serve --role ${role} --config ${files[0].target} --grace 30s`);
      const env = { ...environment, IMGBATCH_DATABASE_URL: undefined };
      const { database, blobs } = storagePlaces(storage, {}, readStorageEnvironment(env));
      expect([database.kind, blobs.kind]).toEqual(["postgres", "s3"]);
    }
  });

  it("every template runs the package that a variable names, and without one nothing", async () => {
    const { dir, type } = await workshop({ isInstalled: false });
    await init(dir, "--template", "all");
    await keepFoxes(dir);
    const [github = ""] = runSteps(await read(dir, ".github/workflows/images.yml"));
    const [gitlab] = parse(await read(dir, ".gitlab-ci.yml")).images.script;
    for (const script of [github, gitlab, "./make-images.sh"]) {
      const nameless = await type(script, { IMGBATCH_PACKAGE: "" });
      expect([nameless.code, nameless.text]).toEqual([
        expect.any(Number),
        expect.stringMatching(/IMGBATCH_PACKAGE: .*(set|imgbatch)/),
      ]);
      expect(nameless.code).not.toBe(0);
    }
    const { services } = parse(await read(dir, "compose.yaml"), { merge: true });
    for (const { build } of [services.api, services.worker, services.admin])
      expect(build.args.IMGBATCH_PACKAGE).toMatch(/^\$\{IMGBATCH_PACKAGE:\?[^:]+\}$/);
    const own = await type("./make-images.sh", PACKAGE);
    expect(own).toMatchObject({ code: 0, text: expect.stringContaining("done: images-out/index.html") });
  });

  it("the script goes on after what passes, and says what to do about failed images", async () => {
    const { dir, type } = await workshop({ isInstalled: true });
    await init(dir, "--template", "script");
    const line = (prompt: string) => `${JSON.stringify({ custom_id: "a", prompt })}\n`;
    await writeFile(join(dir, "bad.jsonl"), line("a dog [[refuse]]") + line("a hen").replace('"a"', '"b"'));
    const bad = await type("./make-images.sh bad.jsonl bad");
    expect(bad.code).toBe(4);
    expect(bad.text).toContain("bad/retry.jsonl has their prompts");
    const { url } = await startTestService({ workers: false });
    const wrong = await type("./make-images.sh", { IMGBATCH_BASE_URL: url, IMGBATCH_API_KEY: "wrong" });
    expect(wrong.code).toBe(3);
    expect(wrong.text).toContain("give a key in IMGBATCH_API_KEY");
    expect(wrong.text).toContain("imgbatch exited with 3");
    const shim = (body: string) => `imgbatch() { ${body}; }; export -f imgbatch; ./make-images.sh`;
    expect(await type(shim("echo $*"))).toMatchObject({ code: 0 });
    const brief = { TRIES: "2", PAUSE: "0" };
    const passing = await type(shim("[ -e tried ] || { echo > tried; return 7; }"), brief);
    expect(passing.code).toBe(0);
    expect(passing.text).toContain("trying again in 0 s (1 of 2)");
    const away = await type(shim("return 7"), brief);
    expect(away.code).toBe(7);
    expect(away.text).toContain("still failing after 2 tries");
  });
});
