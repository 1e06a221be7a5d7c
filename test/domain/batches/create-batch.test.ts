import { describe, expect, it } from "vitest";
import type { CheckedRequest } from "../../../src/domain/batches/checked-request.ts";
import { createBatch } from "../../../src/domain/batches/create-batch.ts";
import { imageInMemory } from "../../../src/domain/images/sent-image.ts";
import { Offers } from "../../../src/domain/models.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { groupEntry, modelEntry } from "../../support/entries.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const image = imageInMemory(Buffer.from("a reference image"));
const REQUEST: CheckedRequest = {
  model: modelEntry,
  taskName: null,
  parentBatchId: null,
  mimeType: "image/png",
  metadata: null,
  items: [
    {
      customId: "a",
      prompt: "a",
      earlier: "",
      outputCount: 1,
      images: [{ ...image, id: null, type: null, mimeType: "image/png" }],
      options: DEFAULT_OPTIONS,
    },
  ],
  hash: "h",
};

describe("a batch whose write fails", () => {
  it("keeps its reference images when the commit may have happened, and else leaves nothing", async () => {
    const { stores, blobs } = await openBeside(await tempDir());
    const { apiKeyId } = await openBatchRecord(stores);
    const key = await stores.read.keys.byId(apiKeyId);
    if (key === null) throw new Error("no key");
    const create = (error: Error) => {
      const broken: Stores = { ...stores, write: () => Promise.reject(error) };
      const deps = { stores: broken, blobs, clock: systemClock, ids: randomIds };
      const offers = new Offers([new FakeProvider()], []);
      const caller = { key, group: groupEntry };
      return createBatch(
        { ...deps, offers, takesBatches: async () => true, goesOn: "always" },
        caller,
        REQUEST,
        null,
      );
    };
    await expect(create(new StorageUnavailable("full", "refused", null))).rejects.toThrow("refused");
    expect(await blobs.list("inputs/")).toEqual([]);
    await expect(create(new StorageUnavailable("unknown-commit", "lost", null))).rejects.toThrow("lost");
    expect(await blobs.list("inputs/")).toHaveLength(1);
  });
});
