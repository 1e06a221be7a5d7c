import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { makeDirectory } from "../../src/kernel/files.ts";
import { tempDir } from "../support/temp-dir.ts";

it("a directory is made with its parents, by several at once too, and the topmost new one is returned", async () => {
  const root = await tempDir();
  const path = join(root, "a", "b", "c");
  const made = await Promise.all([makeDirectory(path), makeDirectory(path), makeDirectory(path)]);
  expect(made).toContain(join(root, "a"));
  expect(await makeDirectory(path)).toBeUndefined();
});

it("a file in the way and a file system that takes no directory are errors at once", async () => {
  const root = await tempDir();
  await writeFile(join(root, "f"), "");
  await expect(makeDirectory(join(root, "f"))).rejects.toMatchObject({ code: "EEXIST" });
  await expect(makeDirectory(join(root, "f", "x"))).rejects.toMatchObject({ syscall: "mkdir" });
  await expect(makeDirectory("/proc/none/x")).rejects.toMatchObject({ code: "ENOENT" });
});
