import { mkdir, readdir, readFile, realpath, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import {
  appendText,
  confineWrites,
  makeDirectory,
  openPathBelow,
  openRegularFile,
  writeFileDurably,
} from "../../src/kernel/files.ts";
import { withRunLock } from "../../src/runs/directory/claim.ts";
import { readPromptFiles } from "../../src/runs/plan/prompt-files.ts";
import { loadReference } from "../../src/runs/plan/reference-files.ts";
import { Spool } from "../../src/runs/plan/spool.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { tempDir } from "../support/temp-dir.ts";

let root: string;
let outside: string;
beforeEach(async () => {
  const place = await realpath(await tempDir());
  [root, outside] = [join(place, "root"), join(place, "outside")];
  for (const dir of [root, outside, join(root, "dir")]) await mkdir(dir);
});

/** Puts a link in the place of a directory, as another program may between a check and the work. */
async function swap(): Promise<void> {
  await rename(join(root, "dir"), join(root, "aside"));
  await symlink(outside, join(root, "dir"));
}

it("[MCP-2] a file that was opened through a link counts as where it is, whatever its name leads to later", async () => {
  for (const dir of [outside, join(root, "dir")]) await writeFile(join(dir, "a.txt"), dir);
  const path = join(root, "dir", "a.txt");
  expect(await openPathBelow(root, openRegularFile(path), path)).toBe(path);
  await swap();
  const opened = openRegularFile(path);
  await rm(join(root, "dir"));
  await rename(join(root, "aside"), join(root, "dir"));
  expect(await openPathBelow(root, opened, path)).toBeNull();
});

it("[MCP-2] prompts and references that lead out once they are open are not read", async () => {
  await writeFile(join(outside, "p.jsonl"), '{"prompt": "a secret"}\n');
  await writeFile(join(outside, "a.png"), await tinyPng());
  await swap();
  const stdin = async function* () {};
  const sources = [{ name: "dir/p.jsonl", cwd: root, stdin }];
  const rules = { limits: DEFAULT_LIMITS, defaultCount: 1, root };
  await expect(readPromptFiles(sources, rules)).rejects.toMatchObject({
    details: [expect.stringContaining("cannot be read (EXDEV)")],
  });
  const problems: string[] = [];
  const spec = { path: "dir/a.png", field: "reference_images[0]" } as Parameters<typeof loadReference>[0];
  const options = { baseDir: root, limits: DEFAULT_LIMITS, spool: new Spool(), root };
  const found = await loadReference(spec, options, (_, problem) => problems.push(problem));
  expect([found, problems]).toEqual([null, [expect.stringContaining("leads out of")]]);
});

it("[MCP-2] nothing is written where a link leads that took the place of a directory", async () => {
  confineWrites([root, join(outside, "..", "data", "mine")]);
  onTestFinished(() => confineWrites(null));
  await writeFileDurably(join(root, "dir", "a.txt"), "mine");
  await swap();
  await makeDirectory(join(outside, "..", "data", "mine", "blobs"));
  const led = join(root, "dir");
  await writeFile(join(outside, "theirs.txt"), "theirs");
  const clock = systemClock;
  for (const write of [
    () => writeFileDurably(join(led, "b.txt"), "mine"),
    () => appendText(join(led, "theirs.txt"), "mine"),
    () => makeDirectory(join(led, "new", "newer")),
    () => withRunLock(join(led, "run"), { clock }, async () => {}),
  ])
    await expect(write()).rejects.toMatchObject({ message: expect.stringContaining("leads out") });
  expect(await readdir(outside)).toEqual(["theirs.txt"]);
  expect(await readFile(join(outside, "theirs.txt"), "utf8")).toBe("theirs");
  expect(await readdir(join(root, "aside"))).toEqual(["a.txt"]);
});
