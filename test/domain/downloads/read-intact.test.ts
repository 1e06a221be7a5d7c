import { execFileSync } from "node:child_process";
import { mkdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { intactBytes } from "../../../src/domain/downloads/read-intact.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const KEY = "outputs/a/0";

it("[RESULT-3] a stored image that has become too large to be read, or no file, is damaged", async () => {
  const root = await tempDir();
  const blobs = fileBlobs(root);
  const output = { blobKey: KEY, ...(await blobs.put(KEY, Buffer.from("an image"))) };
  const file = join(root, "outputs", "a", "0");
  expect(String(await intactBytes(blobs, output))).toBe("an image");

  await writeFile(file, "an IMAGE");
  expect(await intactBytes(blobs, output)).toBeNull();
  // Sparse: it takes no room on the disk.
  await truncate(file, 3 * 1024 ** 3);
  expect(await intactBytes(blobs, output)).toBeNull();
  await rm(file);
  expect(await intactBytes(blobs, output)).toBeNull();
  await mkdir(file);
  expect(await intactBytes(blobs, output)).toBeNull();
});

it.skipIf(process.platform === "win32")(
  "[RESULT-3] a pipe in the place of an image is not waited for",
  async () => {
    const root = await tempDir();
    const blobs = fileBlobs(root);
    const output = { blobKey: KEY, ...(await blobs.put(KEY, Buffer.from("an image"))) };
    const file = join(root, "outputs", "a", "0");
    await rm(file);
    execFileSync("mkfifo", [file]);
    expect(await intactBytes(blobs, output)).toBeNull();
  },
);
