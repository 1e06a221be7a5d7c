import { execFileSync } from "node:child_process";
import { mkdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { isIntact, readIntact } from "../../../src/domain/downloads/piece-stream.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const KEY = "outputs/a/0";
/** A large one is read in pieces where only its hash matters. */
const IMAGES = [
  ["small", Buffer.from("an image")],
  ["large", Buffer.alloc(3_000_001, "an image")],
] as const;

it.each(IMAGES)(
  "a stored image (%s) that was changed, has become too large to be read, or is no file, is damaged",
  async (_, image) => {
    const root = await tempDir();
    const blobs = fileBlobs(root);
    const output = { blobKey: KEY, ...(await blobs.put(KEY, image)) };
    const file = join(root, "outputs", "a", "0");
    const expectDamaged = async () => {
      await expect(readIntact(blobs, output)).rejects.toMatchObject({ code: "BATCH_IMAGE_RESULT_MISSING" });
      expect(await isIntact(blobs, output)).toBe(false);
    };
    expect((await readIntact(blobs, output)).equals(image)).toBe(true);
    expect(await isIntact(blobs, output)).toBe(true);

    const changed = Buffer.from(image);
    changed.write("E", image.length - 1);
    await writeFile(file, changed);
    await expectDamaged();
    await truncate(file, image.length - 1);
    await expectDamaged();
    // Sparse: it takes no room on the disk.
    await truncate(file, 3 * 1024 ** 3);
    await expectDamaged();
    await rm(file);
    await expectDamaged();
    await mkdir(file);
    await expectDamaged();
    if (process.platform === "win32") return;
    await rm(file, { recursive: true });
    // Nothing would ever come out of a pipe.
    execFileSync("mkfifo", [file]);
    await expectDamaged();
  },
);
