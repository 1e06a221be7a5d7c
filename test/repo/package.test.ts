import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { startNode } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

const REPOSITORY = resolve(import.meta.dirname, "../..");
/** An installation with npm takes long: it runs when this variable is set. */
const isSoak = Boolean(process.env.IMGBATCH_SOAK);
const run = promisify(execFile);

const npm = (...args: string[]) =>
  run("npm", [...args, "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], {
    cwd: REPOSITORY,
  });

/** Packs what would be published. Returns the name of the archive, and the paths in it. */
async function pack(...args: string[]): Promise<{ filename: string; paths: string[] }> {
  const { stdout } = await npm("pack", "--json", ...args);
  const [{ filename, files }] = JSON.parse(stdout);
  return { filename, paths: files.map(({ path }: { path: string }) => path) };
}

/** Runs the main job, with a prompt of the templates that came along. */
async function makeImage(directory: string, installed: string, program: string): Promise<void> {
  const output = join(directory, "out");
  const env = { PATH: process.env.PATH, HOME: directory, IMGBATCH_DATA: join(directory, "data") };
  const prompts = (await readFile(join(installed, "templates/prompts.jsonl"), "utf8")).split("\n");
  await writeFile(join(directory, "p.jsonl"), prompts.filter((line) => line.startsWith("{"))[0] ?? "");
  await run(program, ["submit", "p.jsonl", "--output", output], { cwd: directory, env });
  expect((await readdir(join(output, "images"))).length).toBeGreaterThan(0);
}

describe("the package", { timeout: 180_000 }, () => {
  it("[REPO-7] runs the main job with the files that are packed, and the packages that it names", async () => {
    const { paths } = await pack("--dry-run");
    const ours = paths.filter((path) => !/^(bin|dist|templates)\/|^src\/providers\/.*\.svg$/.test(path));
    expect(ours.sort()).toEqual([
      ".github/CONTRIBUTING.md",
      ".github/SECURITY.md",
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "package.json",
      "src/cli/README.md",
      "src/imaging/fonts.conf",
      "src/library/imgbatch.cjs",
      "src/library/imgbatch.d.cts",
      "src/library/test.cjs",
      "src/library/test.d.cts",
      "src/library/test.mjs",
      "src/server/README.md",
      "src/service/CLUSTER.md",
      "src/service/README.md",
    ]);
    expect(paths).toContain("dist/console/index.html");

    const directory = await tempDir();
    const installed = join(directory, "imgbatch");
    for (const path of paths) await cp(join(REPOSITORY, path), join(installed, path));
    const { dependencies } = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
    for (const name of Object.keys(dependencies)) {
      const link = join(installed, "node_modules", name);
      await mkdir(dirname(link), { recursive: true });
      await symlink(join(REPOSITORY, "node_modules", name), link);
    }
    const program = join(installed, "bin/imgbatch.cjs");
    await makeImage(directory, installed, program);
    for (const file of ["licences.txt", "licences-view.txt", "console/licenses.md"])
      expect(await readFile(join(installed, "dist", file), "utf8")).toMatch(/Permission is hereby granted/);

    // Amazon's sources of keys came along, and are asked for those of a role.
    const keyless = {
      PATH: process.env.PATH,
      HOME: directory,
      IMGBATCH_DATA: join(directory, "keyless"),
      AWS_EC2_METADATA_DISABLED: "true",
    };
    const serving = run(program, ["serve", "--blobs", "s3://images"], { cwd: directory, env: keyless });
    const refused = await serving.catch((error) => error);
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringMatching(
        /^error: .*AWS_ACCESS_KEY_ID is not set, and this process has no role with keys .*\n.*give this process a role/,
      ),
    ]);

    // Traces are never needed: without their package the service starts all the same.
    const traced = { ...keyless, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" };
    const untraced = startNode([program, "serve", "--port", "0"], { cwd: directory, env: traced });
    const { url } = JSON.parse(await untraced.line()) as { url: string };
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    untraced.child.kill("SIGTERM");
    const { code, stderr } = await untraced.exited;
    expect(code).toBe(0);
    const warnings = stderr.split("\n").filter((line) => line.includes('"level":"warn"'));
    expect(warnings).toEqual([expect.stringContaining("npm install --global @opentelemetry/sdk-node@0.223")]);

    // A compiled part that is missing is told in two lines, with what to do.
    for (const [part, advice] of [
      ["better-sqlite3", `npm --prefix ${installed} rebuild better-sqlite3`],
      ["sharp", "install imgbatch again on this system"],
    ] as const) {
      const broken = join(installed, "node_modules", part);
      await rm(broken);
      await cp(join(REPOSITORY, "node_modules", part), broken, {
        recursive: true,
        filter: (path) => !/better-sqlite3\/(build|deps)$/.test(path),
      });
      const env = { PATH: process.env.PATH, HOME: directory, IMGBATCH_DATA: join(directory, "other") };
      const { code, stderr } = await run(program, ["submit", "p.jsonl", "-o", part], {
        cwd: directory,
        env,
      }).catch((error) => error);
      const lines = stderr.split("\n").filter((line: string) => !/^using the embedded/.test(line));
      expect([code, ...lines]).toEqual([
        1,
        expect.stringMatching(`^error: ${part} does not load here: `),
        expect.stringContaining(`next: ${advice}`),
        "",
      ]);
      await rm(broken, { recursive: true });
      await symlink(join(REPOSITORY, "node_modules", part), broken);
    }
  });

  it.runIf(isSoak)(
    "[REPO-7] packed and installed globally into an empty prefix, it is small and runs the main job",
    async () => {
      const directory = await tempDir();
      const { filename } = await pack("--pack-destination", directory);
      const prefix = join(directory, "prefix");
      await npm("install", "--global", "--prefix", prefix, join(directory, filename));
      const installed = join(prefix, "lib/node_modules/imgbatch");
      await copyCompiled(installed);
      await makeImage(directory, installed, join(prefix, "bin/imgbatch"));
      const { stdout: list } = await run("npm", ["ls", "--all", "--omit=dev", "--parseable"], {
        cwd: installed,
      });
      expect(list.trim().split("\n").length - 1).toBeLessThanOrEqual(45);
      const { stdout: size } = await run("du", ["-sm", installed]);
      expect(Number.parseInt(size, 10)).toBeLessThanOrEqual(80);
    },
  );

  it.runIf(isSoak)(
    "[REPO-7] the first line of the README works in a checkout, with an empty home",
    async () => {
      const directory = await tempDir();
      const checkout = join(directory, "imgbatch");
      await run("git", ["clone", "--quiet", REPOSITORY, checkout]);
      const readme = await readFile(join(checkout, "README.md"), "utf8");
      const [, install = "", make = ""] = /^(npm ci) && (npx imgbatch submit [^#]*)/m.exec(readme) ?? [];
      const { HOME: _, ...rest } = process.env;
      const env = {
        ...rest,
        HOME: join(directory, "home"),
        IMGBATCH_DATA: "",
        npm_config_ignore_scripts: "true",
      };
      const type = (line: string) => run("bash", ["-c", line], { cwd: checkout, env });
      await type(`${install} --prefer-offline`);
      await copyCompiled(checkout);
      await type("npm run build");
      await type(make);
      expect((await readdir(join(checkout, "out/images"))).length).toBe(12);
    },
  );
});

/** Compiling this part takes minutes and is no matter of the package: the compiled one is copied. */
async function copyCompiled(installed: string): Promise<void> {
  const build = "node_modules/better-sqlite3/build";
  await cp(join(REPOSITORY, build), join(installed, build), { recursive: true });
}
