import { open } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { array, assert, asyncProperty, constantFrom, integer, nat, oneof, record, string } from "fast-check";
import { describe, expect, it } from "vitest";
import { fromBufferPromise } from "yauzl";
import { planBatchZip, type ZipImage } from "../../../src/domain/downloads/zip.ts";
import type { BlobStore } from "../../../src/domain/ports/blob-store.ts";
import { layOutZip } from "../../../src/kernel/zip.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { yazlZip, yazlZipWithoutImages } from "../../support/yazl-zip.ts";

type ZipEntries = Omit<Parameters<typeof planBatchZip>[1], "variant">;

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

function zipImage(
  blobKey: string,
  facts: Awaited<ReturnType<BlobStore["put"]>>,
  entryName: string,
): ZipImage {
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

/** A ZIP without the bytes of its images. */
function aroundImages({ images, texts }: ZipEntries): Buffer {
  const files = [
    ...images.map(({ entryName, output }) => ({ name: entryName, content: output })),
    ...texts.map(({ name, text }) => ({ name, content: text })),
  ];
  return Buffer.concat(layOutZip(files).filter((part) => Buffer.isBuffer(part)));
}

describe("a ZIP", () => {
  it("has the bytes that yazl writes, in every range", async () => {
    const blobs = fileBlobs(await tempDir());
    const sizes = [0, 1, 70, 4096, 256 * 1024, 256 * 1024 + 1, 700_000];
    const stored: { blobKey: string; facts: Awaited<ReturnType<BlobStore["put"]>> }[] = [];
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
        const expected = await yazlZip(blobs, { images: zipped, texts });
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

  it("has a directory of more than 64 KiB where it needs one", async () => {
    const blobs = fileBlobs(await tempDir());
    const facts = await blobs.put("outputs/b/1", Buffer.from("image"));
    const images = Array.from({ length: 600 }, (_, i) =>
      zipImage("outputs/b/1", facts, `images/${String(i).padStart(100, "0")}.png`),
    );
    const zip = await planBatchZip(blobs, { images, texts: [], variant: "all" });
    const expected = await yazlZip(blobs, { images, texts: [] });
    expect((await rangeOf(zip, { start: 0, end: zip.sizeBytes - 1 })).equals(expected)).toBe(true);
    expect(zip.sizeBytes).toBe(expected.length);
  });

  it("has what yazl writes around images of any size", async () => {
    const size = oneof(nat(1000), integer({ min: 4 * GIB - 3000, max: 4 * GIB + 10 }), nat(6 * GIB));
    await assert(
      asyncProperty(
        array(size, { maxLength: 6 }),
        array(string(), { maxLength: 2 }),
        async (sizes, given) => {
          const images = sizes.map((sizeBytes, i) =>
            zipImage("x", { sizeBytes, sha256: "", crc32: (sizeBytes * 7) >>> 0 }, `images/${i}.png`),
          );
          const texts = given.map((text, i) => ({ name: `${i}.json`, text }));
          expect(aroundImages({ images, texts }).equals(await yazlZipWithoutImages({ images, texts }))).toBe(
            true,
          );
        },
      ),
      {
        numRuns: 100,
        examples: [
          [[4 * GIB - 2, 1, 1], ["x"]],
          [[4 * GIB - 1], []],
          [
            [5 * GIB, 5 * GIB],
            ["x", ""],
          ],
        ],
      },
    );
  });

  it("of more entries than the plain format counts can be read", async () => {
    const count = 65_535;
    const facts = { sizeBytes: 0, sha256: "", crc32: 0 };
    const images = Array.from({ length: count }, (_, i) => zipImage("x", facts, `${i}.png`));
    const zip = await fromBufferPromise(aroundImages({ images, texts: [] }));
    expect(zip.entryCount).toBe(count);
  });

  it("above 4 GiB is read only where a range of it lies", async () => {
    const root = await tempDir();
    const blobs = fileBlobs(root);
    await blobs.put("outputs/b/1", Buffer.alloc(1));
    const sizeBytes = 100 * MIB;
    const file = await open(join(root, "outputs/b/1"), "r+");
    await file.truncate(sizeBytes);
    await file.close();
    const facts = { sizeBytes, sha256: "", crc32: crc32(Buffer.alloc(sizeBytes)) };
    const images = Array.from({ length: 42 }, (_, i) => zipImage("outputs/b/1", facts, `images/${i}.png`));
    const entries = { images, texts: [{ name: "manifest.json", text: "{}\n" }] };
    let opened = 0;
    const watched = {
      ...blobs,
      list: blobs.list.bind(blobs),
      reader: (key: string) => {
        opened++;
        return blobs.reader(key);
      },
    };
    const zip = await planBatchZip(watched as typeof blobs, { ...entries, variant: "all" });
    const around = await yazlZipWithoutImages(entries);
    expect(zip.sizeBytes).toBe(around.length + 42 * sizeBytes);
    const tail = around.subarray(-42 * 50);
    const last = await rangeOf(zip, { start: zip.sizeBytes - tail.length - 5, end: zip.sizeBytes - 1 });
    expect(last.subarray(5).equals(tail)).toBe(true);
    expect(opened).toBe(0);
    const place = 41 * (sizeBytes + 16) + 50 * MIB;
    expect(await rangeOf(zip, { start: place, end: place + 9 })).toEqual(Buffer.alloc(10));
    expect(opened).toBe(1);
  });
});
