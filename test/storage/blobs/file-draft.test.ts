import { existsSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { gate } from "../../support/gate.ts";
import { tempDir } from "../../support/temp-dir.ts";

async function store() {
  const root = await tempDir();
  const files = async () =>
    (await readdir(root, { recursive: true, withFileTypes: true })).filter((e) => e.isFile());
  return { root, blobs: fileBlobs(root), files };
}

describe("a blob without a key", () => {
  it("a draft becomes a blob under the key that it gets, and a later discard does not remove the blob", async () => {
    const { root, blobs, files } = await store();
    const draft = blobs.draft();
    await draft.write(Buffer.from("red "));
    expect(await blobs.list("inputs/")).toEqual([]);
    await draft.write(Buffer.from("fox"));
    await draft.finish();
    expect(String(await draft.read())).toBe("red fox");
    expect(await draft.lend(async (bytes) => String(bytes))).toBe("red fox");
    await draft.keepAs("inputs/a/b");
    await draft.discard();
    expect(String(await readFile(join(root, "inputs/a/b")))).toBe("red fox");
    expect(await files()).toHaveLength(1);
  });

  it("a draft continues after a pause, and is streamed in part once it is a blob", async () => {
    const { blobs } = await store();
    const draft = blobs.draft();
    for (const part of ["red ", "fo", "x"]) {
      await draft.write(Buffer.from(part));
      await draft.finish();
    }
    await draft.keepAs("files/a");
    const part = await blobs.open("files/a", { start: 2, end: 5 });
    expect(String(Buffer.concat((await part?.toArray()) ?? []))).toBe("d fo");
    expect(await blobs.open("files/b", { start: 0, end: 0 })).toBeNull();
  });

  it("a draft that borrows a blob keeps its bytes when the blob is deleted, and may become a blob", async () => {
    const { blobs, files } = await store();
    await blobs.put("files/a", Buffer.from("red fox"));
    const [kept, dropped] = [await blobs.borrow("files/a"), await blobs.borrow("files/a")];
    await blobs.delete("files/a");
    expect(await blobs.borrow("files/a")).toBeNull();
    expect(String(await kept?.read())).toBe("red fox");
    expect(await dropped?.lend(async (bytes) => String(bytes))).toBe("red fox");
    await kept?.keepAs("inputs/b");
    await Promise.all([kept?.discard(), dropped?.discard()]);
    expect(String(await blobs.read("inputs/b"))).toBe("red fox");
    expect(await files()).toHaveLength(1);
  });

  it("a draft makes its directory again when the directory was deleted", async () => {
    const { root, blobs } = await store();
    for (const name of ["first", "second"]) {
      const draft = blobs.draft();
      await draft.write(Buffer.from(name));
      await draft.keepAs("inputs/a/b");
      expect(String(await blobs.read("inputs/a/b"))).toBe(name);
      await rm(join(root, "inputs"), { recursive: true });
      await rm(join(root, "drafts"), { recursive: true });
    }
  });

  it("a discarded draft is gone, even in the middle of a write, and takes no more bytes", async () => {
    const { blobs, files } = await store();
    const draft = blobs.draft();
    const written = draft.write(Buffer.alloc(300_000));
    await draft.discard();
    await written;
    expect(await files()).toEqual([]);
    await draft.discard();
    await blobs.draft().discard();
    await expect(draft.keepAs("inputs/a/b")).rejects.toMatchObject({ reason: "broken" });
    expect(await blobs.list("inputs/")).toEqual([]);
  });

  it("a draft of an earlier process is removed", async () => {
    const { root, blobs, files } = await store();
    await blobs.removeDrafts();
    const left = blobs.draft();
    await left.write(Buffer.from("left"));
    await blobs.put("inputs/a/b", Buffer.from("blob"));
    await fileBlobs(root).removeDrafts();
    expect((await files()).map(({ name }) => name)).toEqual(["b"]);
    await left.finish();
  });
});

describe("lent bytes", () => {
  it("lent bytes use memory again, and two loans at once have their own", async () => {
    const { blobs } = await store();
    // Of one length: which of two files is opened first is left to the system.
    const keys = ["aaaaa", "bbbbb", "ccccc", "ddddd", "eeeee"];
    for (const key of [...keys, "f"]) await blobs.put(`inputs/${key}`, Buffer.from(key));
    const memories = new Set<ArrayBufferLike>();
    let [running, most] = [0, 0];
    const two = gate();
    const texts = await Promise.all(
      keys.toReversed().map((key) =>
        blobs.lend(`inputs/${key}`, async (bytes) => {
          memories.add(bytes.buffer);
          most = Math.max(most, ++running);
          if (running === 2) two.open();
          await two.promise;
          await new Promise((resolve) => setImmediate(resolve));
          running--;
          return String(bytes);
        }),
      ),
    );
    expect(texts).toEqual(keys.toReversed());
    expect([most, memories.size]).toEqual([2, 2]);
    for (const key of ["f", ...keys]) {
      await blobs.lend(`inputs/${key}`, async (bytes) => {
        memories.add(bytes.buffer);
        expect(String(bytes)).toBe(key);
      });
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(memories.size).toBe(2);
  });

  it("a loan of a missing blob is null, and failed work throws its own error and returns the memory", async () => {
    const { root, blobs } = await store();
    expect(await blobs.lend("inputs/none", async () => 1)).toBeNull();
    await blobs.put("inputs/a", Buffer.from("a"));
    for (let i = 0; i < 3; i++) {
      const failure = Object.assign(new Error("no"), { code: "ENOENT" });
      await expect(blobs.lend("inputs/a", () => Promise.reject(failure))).rejects.toBe(failure);
    }
    expect(await blobs.lend("inputs/a", async (bytes) => bytes.length)).toBe(1);
    expect(existsSync(join(root, "drafts"))).toBe(false);
  });
});
