import { describe, expect, it } from "vitest";
import type { BlobStore } from "../../../src/domain/ports/blob-store.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { s3Blobs } from "../../../src/storage/blobs/s3.ts";
import { fakeBucket, hasRealBucket, realBucket } from "../../support/s3/buckets.ts";
import { tempDir } from "../../support/temp-dir.ts";

const BYTES = Buffer.from(Array.from({ length: 1000 }, (_, i) => (i * 7) % 256));

const openers: Record<string, () => Promise<BlobStore>> = {
  files: async () => fileBlobs(await tempDir()),
  S3: async () => {
    const { fake, settings } = await fakeBucket();
    fake.pageSize = 10;
    return s3Blobs(settings);
  },
  "S3 without a prefix": async () => s3Blobs((await fakeBucket({ prefix: "" })).settings),
  ...(hasRealBucket && { "a real S3 server": async () => s3Blobs(await realBucket()) }),
};

/** The keys below a prefix, sorted. */
async function keysOf(blobs: BlobStore, prefix: string): Promise<string[]> {
  return (await blobs.list(prefix)).map(({ key }) => key).sort();
}

describe.each(Object.entries(openers))("blobs in %s", (_name, open) => {
  it("a blob is read as it was stored, whole, in part and by size", async () => {
    const blobs = await open();
    const facts = await blobs.put("outputs/b/1", BYTES);
    expect(facts).toEqual({
      sizeBytes: 1000,
      sha256: "89f4ff56a25dd1db06a4ce6033603775d705fb96f30f8693733fef602a1ca532",
      crc32: 290117119,
    });
    expect(await blobs.read("outputs/b/1")).toEqual(BYTES);
    expect(await blobs.read("outputs/b/1", 1000)).toEqual(BYTES);
    expect(await blobs.read("outputs/b/1", 999)).toBeNull();
    expect(await blobs.read("outputs/b/1", 1001)).toBeNull();
    expect(await blobs.sizeOf("outputs/b/1")).toBe(1000);
    for (const range of [undefined, { start: 0, end: 0 }, { start: 990, end: 999 }]) {
      const stream = await blobs.open("outputs/b/1", range);
      const part = BYTES.subarray(range?.start, range && range.end + 1);
      expect(Buffer.concat((await stream?.toArray()) ?? [])).toEqual(part);
    }
  });

  it("an empty blob is a blob", async () => {
    const blobs = await open();
    await blobs.put("files/a", Buffer.alloc(0));
    expect(await blobs.read("files/a")).toEqual(Buffer.alloc(0));
    expect(await blobs.read("files/a", 0)).toEqual(Buffer.alloc(0));
    expect(await blobs.sizeOf("files/a")).toBe(0);
    expect(await (await blobs.open("files/a"))?.toArray()).toEqual([]);
    expect(await blobs.lend("files/a", async (bytes) => bytes.length)).toBe(0);
  });

  it("nothing is read where there is no blob", async () => {
    const blobs = await open();
    const key = "outputs/b/none";
    expect(await blobs.read(key)).toBeNull();
    expect(await blobs.read(key, 1)).toBeNull();
    expect(await blobs.sizeOf(key)).toBeNull();
    expect(await blobs.open(key)).toBeNull();
    expect(await blobs.reader(key)).toBeNull();
    expect(await blobs.borrow(key)).toBeNull();
    expect(await blobs.lend(key, async () => 1)).toBeNull();
    expect(await blobs.list("outputs/b/")).toEqual([]);
    await blobs.delete(key);
    await blobs.deleteAll("outputs/b/");
  });

  it("a reader reads in any order, also after the blob was deleted", async () => {
    const blobs = await open();
    await blobs.put("outputs/b/1", BYTES);
    const reader = await blobs.reader("outputs/b/1");
    await blobs.deleteAll("outputs/");
    const memory = Buffer.alloc(100);
    for (const at of [900, 0, 450]) {
      expect(await reader?.read(memory, at)).toBe(100);
      expect(memory).toEqual(BYTES.subarray(at, at + 100));
    }
    expect(await reader?.read(memory, 950)).toBe(50);
    expect(await reader?.read(memory, 1000)).toBe(0);
    await reader?.close();
  });

  it("a list has the keys below its prefix, with size and age", async () => {
    const blobs = await open();
    const names = Array.from({ length: 25 }, (_, i) => `inputs/b/${i}`);
    for (const [i, name] of names.entries()) await blobs.put(name, BYTES.subarray(0, i));
    await blobs.put("inputs/bb/1", BYTES);
    const listed = await blobs.list("inputs/b/");
    expect(listed.map(({ key }) => key).sort()).toEqual(names.toSorted());
    for (const { key, sizeBytes, ageMs } of listed) {
      expect(`inputs/b/${sizeBytes}`).toBe(key);
      expect(Math.abs(ageMs)).toBeLessThan(60_000);
    }
    expect(await blobs.list("inputs/")).toHaveLength(26);
  });

  it("what is deleted is gone, and nothing else", async () => {
    const blobs = await open();
    for (const key of ["outputs/a/1", "outputs/a/2", "outputs/a/x/3", "outputs/ab/1"])
      await blobs.put(key, BYTES);
    await blobs.delete("outputs/a/1");
    expect(await keysOf(blobs, "outputs/")).toEqual(["outputs/a/2", "outputs/a/x/3", "outputs/ab/1"]);
    await blobs.deleteAll("outputs/a/");
    expect(await keysOf(blobs, "outputs/")).toEqual(["outputs/ab/1"]);
  });

  it("a draft has no key until it gets one, and then its bytes do", async () => {
    const blobs = await open();
    const draft = blobs.draft();
    await draft.write(BYTES.subarray(0, 400));
    await draft.finish();
    await draft.write(BYTES.subarray(400));
    expect(await draft.read()).toEqual(BYTES);
    expect(await draft.lend(async (bytes) => bytes.length)).toBe(1000);
    expect(await keysOf(blobs, "files/")).toEqual([]);
    await draft.keepAs("files/a");
    await draft.discard();
    expect(await blobs.read("files/a")).toEqual(BYTES);
    const borrowed = await blobs.borrow("files/a");
    await blobs.delete("files/a");
    expect(await borrowed?.read()).toEqual(BYTES);
    await borrowed?.keepAs("inputs/b/lines");
    expect(await blobs.read("inputs/b/lines")).toEqual(BYTES);
    await borrowed?.discard();
    expect(await blobs.sizeOf("inputs/b/lines")).toBe(1000);
  });

  it("a lent blob is whole, and the error of the work is passed on", async () => {
    const blobs = await open();
    await blobs.put("inputs/a", BYTES);
    expect(await blobs.lend("inputs/a", async (bytes) => Buffer.from(bytes))).toEqual(BYTES);
    const failure = Object.assign(new Error("no"), { code: "ENOENT" });
    await expect(blobs.lend("inputs/a", () => Promise.reject(failure))).rejects.toBe(failure);
  });
});
