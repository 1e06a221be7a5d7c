import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import { EarlyReadBack } from "../../../../src/domain/batches/read-back/early-read-back.ts";
import { ReadBack } from "../../../../src/domain/batches/read-back/read-back.ts";
import type { BlobStore } from "../../../../src/domain/ports/blob-store.ts";
import type { OutputRecord } from "../../../../src/domain/records.ts";
import { fileBlobs } from "../../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const BYTES = Buffer.from("an image");

/** Stores images, damages some, and reads all of them early. `reads` are the keys of later reads. */
async function readEarly(names: string[], damaged: string[] = []) {
  const root = await tempDir();
  const files = fileBlobs(root);
  const reads: string[] = [];
  const reading: Promise<unknown>[] = [];
  const read: BlobStore["read"] = (key, sizeBytes) => {
    reads.push(key);
    const result = files.read(key, sizeBytes);
    reading.push(result);
    return result;
  };
  const outputs: OutputRecord[] = [];
  for (const blobKey of names) {
    const facts = { mimeType: "image/png", widthPx: 1, heightPx: 1, entryName: null } as const;
    const stored = await files.put(blobKey, BYTES);
    if (damaged.includes(blobKey)) await writeFile(join(root, blobKey), "no image");
    outputs.push({ itemId: outputs.length, batchId: "b", imageIndex: 0, blobKey, ...stored, ...facts });
  }
  const blobs = { ...files, read };
  const early = new EarlyReadBack(blobs);
  early.add(outputs);
  await expect.poll(() => reads.length).toBe(names.length);
  await Promise.all(reading);
  await setImmediate();
  reads.length = 0;
  return { root, blobs, outputs, early, reads };
}

it("[RESULT-4] reads an image again at the end only if its file has changed since it was read early", async () => {
  const { root, blobs, outputs, early, reads } = await readEarly(["same", "replaced", "longer", "removed"]);
  await writeFile(join(root, "other"), BYTES);
  await rename(join(root, "other"), join(root, "replaced"));
  await writeFile(join(root, "longer"), "an image and more");
  await rm(join(root, "removed"));
  await new ReadBack(blobs, early).read(outputs);
  expect(reads).toEqual(["replaced", "longer", "removed"]);
});

it("[RESULT-4] takes no image for intact that was damaged when it was read early", async () => {
  const { early } = await readEarly(["good", "damaged"], ["damaged"]);
  expect([early.take("good"), early.take("damaged")]).toEqual([true, false]);
});

it("[RESULT-4] tells nothing about an image for a second time, or about one that it does not know", async () => {
  const { early } = await readEarly(["good"]);
  expect([early.take("good"), early.take("good"), early.take("unknown")]).toEqual([true, false, false]);
});

it("[RESULT-4] reads no further image early when it is closed", async () => {
  const { blobs, outputs, reads } = await readEarly(["a", "b", "c"]);
  const early = new EarlyReadBack(blobs);
  early.add(outputs);
  early.close();
  early.add(outputs);
  await setImmediate();
  await setImmediate();
  expect(reads).toEqual([]);
});
