import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

async function store() {
  const root = await tempDir();
  const files = async () =>
    (await readdir(root, { recursive: true, withFileTypes: true })).filter((e) => e.isFile());
  return { root, blobs: fileBlobs(root), files };
}

describe("a blob without a key", () => {
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
});
