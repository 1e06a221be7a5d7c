import { describe, expect, it } from "vitest";
import { fileIdOf, Uploads } from "../../../src/domain/files/uploads.ts";
import { type BlobStore, StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { gate } from "../../support/gate.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const limits = { uploadBytes: 10, uploadBytesPerKey: 15, openUploadsPerKey: 2 };
const FACTS = { id: null, displayName: null, mimeType: "x" };
const HOUR_MS = 3_600_000;

async function open(
  changes: { blobs?: (blobs: BlobStore) => BlobStore; stores?: (stores: Stores) => Stores } = {},
) {
  const { stores, blobs } = await openBeside(await tempDir());
  const { apiKeyId } = await openBatchRecord(stores);
  const clock = new FakeClock();
  const deps = { stores: changes.stores?.(stores) ?? stores, blobs: changes.blobs?.(blobs) ?? blobs, clock };
  const uploads = new Uploads(deps, limits);
  const begin = (bytes: number | null = null) => uploads.begin(apiKeyId, FACTS, bytes);
  const left = async () =>
    [
      ...(await blobs.list("files/")),
      ...(await blobs.list("uploads/")),
      ...(await blobs.list("drafts/")),
    ].map(({ key }) => key);
  return { stores, blobs, clock, uploads, begin, left, apiKeyId };
}

const bytes = (count: number) => Buffer.alloc(count, "a");

describe("uploads", () => {
  it("end a file above its limit, and refuse a key above its quota until it has space again", async () => {
    const { begin, left, stores, apiKeyId } = await open();
    const large = await begin();
    const chunk = await large.open(0, 0);
    await chunk.add(bytes(10));
    await expect(chunk.add(bytes(1))).rejects.toMatchObject({ code: "REQUEST_TOO_LARGE" });
    await chunk.close();
    expect([large.state, await left()]).toEqual(["cancelled", []]);
    const announced = await begin();
    await expect(announced.open(0, 11)).rejects.toMatchObject({ code: "REQUEST_TOO_LARGE" });

    const announcing = await begin(8);
    await expect(begin(8)).rejects.toMatchObject({ code: "FILE_QUOTA_EXCEEDED" });
    const own = await announcing.open(0, 8);
    await own.add(bytes(8));
    await announcing.cancel();

    const [first, second] = [await begin(), await begin()];
    await expect(begin()).rejects.toMatchObject({ code: "FILE_QUOTA_EXCEEDED" });
    const ofFirst = await first.open(0, 0);
    await ofFirst.add(bytes(10));
    const ofSecond = await second.open(0, 0);
    await ofSecond.add(bytes(5));
    await expect(ofSecond.add(bytes(1))).rejects.toMatchObject({ code: "FILE_QUOTA_EXCEEDED" });
    const file = await ofFirst.finish();
    await expect(begin(11)).rejects.toMatchObject({ code: "REQUEST_TOO_LARGE" });
    await expect(begin(1)).rejects.toMatchObject({ code: "FILE_QUOTA_EXCEEDED" });
    await stores.write((tx) => tx.files.remove(file.blobKey));
    const rest = await second.open(5, 1);
    await rest.add(bytes(1));
    await rest.close();
    expect(await stores.read.files.bytesOf(apiKeyId, 0)).toBe(0);
  });

  it("count what other uploads of the key store meanwhile when they end", async () => {
    const { begin, stores, apiKeyId, left } = await open();
    const upload = await begin();
    const chunk = await upload.open(0, 0);
    await chunk.add(bytes(8));
    const other = { id: "b", apiKeyId, displayName: null, mimeType: "x", sha256: "", createdAtMs: 0 };
    const rest = { purpose: null, sizeBytes: 8, blobKey: "files/b", expiresAtMs: 1e15 };
    await stores.write((tx) => tx.files.insert({ ...other, ...rest }));
    await expect(chunk.finish()).rejects.toMatchObject({ code: "FILE_QUOTA_EXCEEDED" });
    await expect(chunk.add(bytes(1))).rejects.toMatchObject({ code: "REALTIME_INVALID_ARGUMENT" });
    await chunk.close();
    await stores.write((tx) => tx.files.remove("files/b"));
    expect(await (await upload.open(null, 0)).finish()).toMatchObject({ sizeBytes: 8 });
    expect(await left()).toHaveLength(1);
  });

  it("pass from a request in the middle of a write to the next one without a byte lost or doubled", async () => {
    const written = gate();
    const { begin, blobs, uploads } = await open({
      blobs: (blobs) => ({
        ...blobs,
        draft: () => {
          const draft = blobs.draft();
          return { ...draft, write: async (part) => draft.write(part).then(() => written.promise) };
        },
      }),
    });
    const upload = await begin();
    const other = await uploads.find(upload.id);
    const first = await upload.open(0, 0);
    const adding = first.add(Buffer.from("red "));
    const taking = other.open(2, 0);
    written.open();
    await adding;
    const second = await taking;
    await expect(first.add(Buffer.from("blue"))).rejects.toMatchObject({ code: "FILE_UPLOAD_TAKEN_OVER" });
    await expect(first.finish()).rejects.toMatchObject({ code: "FILE_UPLOAD_TAKEN_OVER" });
    await first.close();
    await second.add(Buffer.from("d fox"));
    const { blobKey } = await second.finish();
    expect(String(await blobs.read(blobKey))).toBe("red fox");
  });

  it("that nobody goes on with end after an hour; one that is busy does not", async () => {
    const { begin, clock, uploads, left } = await open();
    const [idle, busy] = [await begin(), await begin()];
    const chunk = await idle.open(0, 0);
    await chunk.add(bytes(3));
    await chunk.close();
    const running = await busy.open(0, 0);
    clock.advance(HOUR_MS - 1);
    await uploads.endIdle();
    expect((await uploads.find(idle.id)).receivedBytes).toBe(3);
    clock.advance(1);
    await expect(uploads.find(idle.id)).rejects.toThrow("No such upload");
    await uploads.endIdle();
    expect(await left()).toEqual([]);
    await running.add(bytes(1));
    await running.finish();
    await running.close();
    expect((await uploads.find(busy.id)).state).toBe("final");
    clock.advance(HOUR_MS);
    await uploads.endIdle();
    await expect(uploads.find(busy.id)).rejects.toThrow("No such upload");
  });

  it("end when the disk is full, and leave nothing there", async () => {
    const full = new StorageUnavailable("full", "The service's disk is full.", null);
    const { begin, left } = await open({
      blobs: (blobs) => ({
        ...blobs,
        draft: () => {
          const draft = blobs.draft();
          const write = async (part: Uint8Array) => {
            await draft.write(part);
            throw full;
          };
          return { ...draft, write };
        },
      }),
    });
    const upload = await begin();
    const chunk = await upload.open(0, 0);
    await expect(chunk.add(bytes(3))).rejects.toBe(full);
    await chunk.close();
    expect([upload.state, await left()]).toEqual(["cancelled", []]);
    await expect(upload.open(0, 0)).rejects.toMatchObject({ code: "FILE_UPLOAD_NOT_FOUND" });
  });

  it("store the bytes first; when the record fails, the end can be tried again", async () => {
    const busy = new StorageUnavailable("busy", "The database is locked.", null);
    let isBusy = false;
    const { begin, left, uploads } = await open({
      stores: (stores) => ({
        ...stores,
        write: (work) => (isBusy ? Promise.reject(busy) : stores.write(work)),
      }),
    });
    const upload = await begin();
    const chunk = await upload.open(0, 0);
    await chunk.add(bytes(3));
    isBusy = true;
    await expect(chunk.finish()).rejects.toBe(busy);
    await chunk.close();
    isBusy = false;
    const again = await uploads.find(upload.id);
    const whole = await again.open(0, 3);
    await whole.add(bytes(3));
    expect(await whole.finish()).toMatchObject({ sizeBytes: 3 });
    expect(await left()).toHaveLength(1);
  });

  it("keep the bytes when nobody knows whether their record was written", async () => {
    const unknown = new StorageUnavailable("unknown-commit", "The service's disk has failed.", null);
    let isBroken = false;
    const { begin, left, stores } = await open({
      stores: (stores) => ({
        ...stores,
        write: async (work) => {
          const result = await stores.write(work);
          if (isBroken) throw unknown;
          return result;
        },
      }),
    });
    const upload = await begin();
    const chunk = await upload.open(0, 0);
    await chunk.add(bytes(3));
    isBroken = true;
    await expect(chunk.finish()).rejects.toBe(unknown);
    await chunk.close();
    await upload.cancel();
    expect(upload.state).toBe("final");
    expect(await left()).toEqual(await stores.read.files.blobKeys());
    expect(await left()).toHaveLength(1);
  });

  it.each([
    ["files/abc", "abc"],
    ["abc-1", "abc-1"],
    ["https://x.invalid/gateway/v1beta/files/abc", "abc"],
    ["/files/abc", "abc"],
    ["https://x.invalid/fox", null],
    ["profiles/abc", null],
    ["files/abc/def", null],
    ["files/Abc", null],
    ["files/", null],
    ["", null],
  ])("are named by the id at the end: %s", (name, id) => {
    expect(fileIdOf(name)).toBe(id);
  });
});
