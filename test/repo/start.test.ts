import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import { beforeEach, describe, expect, it } from "vitest";
import { tempDir } from "../support/temp-dir.ts";

const REPOSITORY = resolve(import.meta.dirname, "../..");

let copy: string;

/** The files of the program that `--version` loads. */
beforeEach(async () => {
  copy = await tempDir();
  for (const path of ["bin", "package.json"])
    await cp(join(REPOSITORY, path), join(copy, path), { recursive: true });
  await mkdir(join(copy, "dist"));
  for (const name of await readdir(join(REPOSITORY, "dist")))
    if (/^(main|version|rolldown).*\.cjs$/.test(name))
      await cp(join(REPOSITORY, "dist", name), join(copy, "dist", name));
});

async function version(...flags: string[]): Promise<string> {
  const args = [...flags, join(copy, "bin/imgbatch.cjs"), "--version"];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args);
  return stdout + stderr;
}

/** By the path below `dist/cache`. */
async function keptCode(): Promise<Map<string, Buffer>> {
  const cache = join(copy, "dist/cache");
  const files = (await readdir(cache, { recursive: true })).filter((path) => path.endsWith(".cjs"));
  return new Map(
    await Promise.all(files.map(async (path) => [path, await readFile(join(cache, path))] as const)),
  );
}

describe("the start of the program", () => {
  it("[REPO-10] keeps compiled code at its first run, and uses it", async () => {
    const printed = await version();
    expect(printed).toMatch(/^\d+\.\d+\.\d+\n$/);
    const kept = await keptCode();
    expect([...kept.keys()].length).toBeGreaterThan(0);

    // Another text of the same length shows that it is not compiled again.
    for (const path of kept.keys()) {
      const file = join(copy, "dist", basename(path));
      await writeFile(file, " ".repeat((await readFile(file)).length));
    }
    expect(await version()).toBe(printed);
    expect(await keptCode()).toEqual(kept);
  });

  it("[REPO-13] keeps no code of a file whose name stays the same when its content changes", async () => {
    await version();
    for (const name of (await keptCode()).keys()) expect(name).toMatch(/-[\w-]{8}\.cjs$/);
  });

  it("[REPO-11] needs no compiled code: damaged code is replaced, and it does not matter that none can be kept", async () => {
    const printed = await version();
    const kept = await keptCode();
    for (const damage of [cut, flipped, () => Buffer.from("other code")]) {
      for (const [path, code] of kept) await writeFile(join(copy, "dist/cache", path), damage(code));
      expect(await version()).toBe(printed);
      expect([...(await keptCode()).keys()]).toEqual([...kept.keys()]);
      expect(await keptCode()).not.toEqual(new Map([...kept].map(([path, code]) => [path, damage(code)])));
    }

    await rm(join(copy, "dist/cache"), { recursive: true });
    await writeFile(join(copy, "dist/cache"), "no directory");
    expect(await version()).toBe(printed);
  });

  it("[REPO-14] keeps code for each set of flags of the engine", async () => {
    const printed = await version();
    const kept = await keptCode();
    expect(await version("--stack-size=900")).toBe(printed);
    expect((await keptCode()).size).toBe(2 * kept.size);
    expect(await readdir(join(copy, "dist/cache"))).toHaveLength(2);
  });
});

const cut = (code: Buffer) => code.subarray(0, code.length >> 1);

/** As by a bad disk. */
function flipped(code: Buffer): Buffer {
  const copied = Buffer.from(code);
  for (let at = 64; at < copied.length; at += 97) copied[at] = (copied[at] ?? 0) ^ 0xff;
  return copied;
}
