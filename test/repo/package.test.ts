import { execFile } from "node:child_process";
import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { tempDir } from "../support/temp-dir.ts";

const REPOSITORY = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

describe("the package", () => {
  it("[REPO-7] packed and installed globally into an empty prefix, it runs the main job", {
    timeout: 180_000,
  }, async () => {
    const directory = await tempDir();
    const npm = (...args: string[]) =>
      run("npm", [...args, "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], {
        cwd: REPOSITORY,
      });
    const { stdout: packed } = await npm("pack", "--json", "--pack-destination", directory);
    const [{ filename, files }] = JSON.parse(packed);
    const paths: string[] = files.map(({ path }: { path: string }) => path);
    const ours = paths.filter((path) => !/^(bin|dist|templates)\//.test(path));
    expect(ours.sort()).toEqual([
      ".github/CONTRIBUTING.md",
      ".github/SECURITY.md",
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "package.json",
      "src/server/README.md",
      "src/service/README.md",
    ]);

    expect(paths).toContain("dist/console/index.html");
    // Compiled code is of use to one version of Node alone.
    expect(paths.filter((path) => path.startsWith("dist/cache"))).toEqual([]);

    const prefix = join(directory, "prefix");
    await npm("install", "--global", "--prefix", prefix, join(directory, filename));
    // Compiling this part takes minutes and is no matter of the package: the compiled one is copied.
    const native = "node_modules/better-sqlite3/build";
    const installed = join(prefix, "lib/node_modules/imgbatch");
    await cp(join(REPOSITORY, native), join(installed, native), { recursive: true });

    const output = join(directory, "out");
    const environment = { PATH: process.env.PATH, HOME: directory, IMGBATCH_DATA: join(directory, "data") };
    const prompts = (await readFile(join(installed, "templates/prompts.jsonl"), "utf8")).split("\n");
    await writeFile(join(directory, "p.jsonl"), prompts.filter((line) => line.startsWith("{"))[0] ?? "");
    await run(join(prefix, "bin/imgbatch"), ["submit", "p.jsonl", "--output", output], {
      cwd: directory,
      env: environment,
    });
    expect((await readdir(join(output, "images"))).length).toBeGreaterThan(0);
  });
});
