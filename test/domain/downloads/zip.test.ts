import { open } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { crc32 } from "node:zlib";
import { array, assert, asyncProperty, constantFrom, integer, nat, record, string } from "fast-check";
import { describe, expect, it } from "vitest";
import type { ZipEntries, ZipImage } from "../../../src/domain/downloads/entry-names.ts";
import { openYazlZip, yazlZipBytes } from "../../../src/domain/downloads/yazl-zip.ts";
import { planBatchZip } from "../../../src/domain/downloads/zip.ts";
import type { BlobFacts } from "../../../src/domain/ports/blob-store.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MIB = 1024 * 1024;

function zipImage(blobKey: string, facts: BlobFacts, entryName: string): ZipImage {
  const output = {
    ...{ ...facts, blobKey, itemId: 1, batchId: "b", imageIndex: 0, mimeType: "image/png" as const },
    ...{ widthPx: 1, heightPx: 1, entryName },
  };
  return { output, customId: "i1", entryName };
}

async function rangeOf(
  zip: { open: (range: { start: number; end: number }) => AsyncIterable<Buffer> },
  range: { start: number; end: number },
) {
  const chunks: Buffer[] = [];
  for await (const chunk of zip.open(range)) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

describe("a ZIP", () => {
  it("[ZIP-6] has the bytes that yazl writes, in every range", async () => {
    const blobs = fileBlobs(await tempDir());
    const sizes = [0, 1, 70, 4096, 256 * 1024, 256 * 1024 + 1, 700_000];
    const stored: { blobKey: string; facts: BlobFacts }[] = [];
    for (const size of sizes) {
      const blobKey = `outputs/b/${size}`;
      const bytes = Buffer.from(Array.from({ length: size }, (_, i) => (i * 17 + (i >> 7) + size) % 256));
      stored.push({ blobKey, facts: await blobs.put(blobKey, bytes) });
    }
    const names = string({ unit: "grapheme", minLength: 1, maxLength: 60 }).map(
      (name) => `images/${name.replace(/[\\/:]|^\.\.$/gu, "_")}.png`,
    );
    const entries = record({
      images: array(record({ at: nat(stored.length - 1), name: names }), { maxLength: 9 }),
      texts: array(record({ name: names, text: string({ unit: "grapheme" }) }), { maxLength: 3 }),
    });
    const places = array(
      record({ from: integer({ min: 0, max: 999 }), length: constantFrom(1, 29, 5000, 9e9) }),
      {
        minLength: 3,
        maxLength: 3,
      },
    );
    await assert(
      asyncProperty(entries, places, async ({ images, texts }, ranges) => {
        const zipped = images.map(({ at, name }) => {
          const { blobKey, facts } = stored[at] as (typeof stored)[number];
          return zipImage(blobKey, facts, name);
        });
        const expected = await buffer(openYazlZip(blobs, { images: zipped, texts }));
        const zip = await planBatchZip(blobs, { images: zipped, texts, variant: "all" });
        expect(zip.sizeBytes).toBe(expected.length);
        for (const { from, length } of [{ from: 0, length: 9e9 }, ...ranges]) {
          const start = Math.floor((from / 1000) * expected.length);
          const end = Math.min(start + length, expected.length) - 1;
          const part = await rangeOf(zip, { start, end });
          expect(part.equals(expected.subarray(start, end + 1)), `${start} to ${end}`).toBe(true);
        }
      }),
      { numRuns: 40 },
    );
  });

  it("[ZIP-6] has a directory of more than 64 KiB where it needs one", async () => {
    const blobs = fileBlobs(await tempDir());
    const facts = await blobs.put("outputs/b/1", Buffer.from("image"));
    const images = Array.from({ length: 600 }, (_, i) =>
      zipImage("outputs/b/1", facts, `images/${String(i).padStart(100, "0")}.png`),
    );
    const zip = await planBatchZip(blobs, { images, texts: [], variant: "all" });
    const expected = await buffer(openYazlZip(blobs, { images, texts: [] }));
    expect((await rangeOf(zip, { start: 0, end: zip.sizeBytes - 1 })).equals(expected)).toBe(true);
    expect(zip.sizeBytes).toBe(expected.length);
  });

  it("[ZIP-7] above 4 GiB is one of ZIP64", async () => {
    const root = await tempDir();
    const blobs = fileBlobs(root);
    await blobs.put("outputs/b/1", Buffer.alloc(1));
    const sizeBytes = 100 * MIB;
    const file = await open(join(root, "outputs/b/1"), "r+");
    await file.truncate(sizeBytes);
    await file.close();
    const bytes = Buffer.alloc(sizeBytes);
    const facts = { sizeBytes, sha256: sha256Hex(bytes), crc32: crc32(bytes) };
    const entries = (count: number): ZipEntries => ({
      images: Array.from({ length: count }, (_, i) => zipImage("outputs/b/1", facts, `images/${i}.png`)),
      texts: [{ name: "manifest.json", text: "{}\n" }],
    });
    const small = await planBatchZip(blobs, { ...entries(40), variant: "all" });
    const large = await planBatchZip(blobs, { ...entries(41), variant: "all" });
    expect(small.sizeBytes).toBe(await yazlZipBytes(entries(40)));
    // The text behind the images has its offset in 28 more bytes, and the directory ends with 76 more.
    const ofImage = 30 + sizeBytes + 16 + 46 + 2 * "images/40.png".length;
    expect(large.sizeBytes - small.sizeBytes).toBe(ofImage + 28 + 76);
    const first = await rangeOf(large, { start: 0, end: MIB });
    expect(first.equals(await rangeOf(small, { start: 0, end: MIB }))).toBe(true);
  });
});
