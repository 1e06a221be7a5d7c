import { describe, expect, it } from "vitest";
import { Thumbnails } from "../../../src/domain/images/thumbnails.ts";
import type { OutputRecord } from "../../../src/domain/records.ts";
import { gate } from "../../support/gate.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const NEVER = new AbortController().signal;

/** Stored images of 100 bytes each, and thumbnails of them that have 10. */
async function opened(options: { wait?: Promise<void> } = {}) {
  const { stores, blobs } = await openBeside(await tempDir());
  const { id: batchId } = await openBatchRecord(stores);
  const calls: number[] = [];
  let running = 0;
  const most = { running: 0 };
  const shrink = async (bytes: Buffer) => {
    calls.push(bytes[0] ?? 0);
    most.running = Math.max(most.running, ++running);
    await options.wait;
    running--;
    return bytes.subarray(0, 10);
  };
  const thumbnails = new Thumbnails({ stores, blobs, shrink });
  const output = async (shade: number): Promise<OutputRecord> => {
    const blobKey = `outputs/${batchId}/${shade}`;
    const facts = await blobs.put(blobKey, Buffer.alloc(100, shade));
    return stores.write(async (tx) => {
      await tx.items.insertMany(batchId, [newItem(shade)]);
      const { id: itemId = 0 } = (await tx.items.byCustomId(batchId, `i${shade}`)) ?? {};
      const image = {
        imageIndex: 0,
        mimeType: "image/png",
        widthPx: 8,
        heightPx: 8,
        entryName: null,
      } as const;
      const record: OutputRecord = { itemId, batchId, blobKey, ...facts, ...image };
      await tx.outputs.insertMany([record]);
      return record;
    });
  };
  return { thumbnails, output, calls, most, blobs, stores };
}

describe("the store of thumbnails", () => {
  it("is not kept when its image was deleted while it was made", async () => {
    const open = gate();
    const { thumbnails, output, calls, blobs, stores } = await opened({ wait: open.promise });
    const image = await output(1);
    const small = thumbnails.get(image, 256, NEVER);
    await expect.poll(() => calls.length).toBe(1);
    await stores.write((tx) => tx.outputs.removeOfItem(image.itemId));
    open.open();
    expect(await small).toHaveLength(10);
    expect(await blobs.list("thumbnails/")).toEqual([]);
  });

  it("makes at most two at a time, each once, and none for a reader who has gone", async () => {
    const open = gate();
    const { thumbnails, output, calls, most } = await opened({ wait: open.promise });
    const outputs = await Promise.all([1, 2, 3, 4].map(output));
    const gone = new AbortController();
    const asked = [...outputs, ...outputs].map((each) => thumbnails.get(each, 256, NEVER));
    const late = thumbnails.get(await output(5), 256, gone.signal);
    await expect.poll(() => calls.length).toBe(2);
    gone.abort(new Error("gone"));
    await expect(late).rejects.toThrow("gone");
    open.open();
    await Promise.all(asked);
    expect([most.running, calls.sort()]).toEqual([2, [1, 2, 3, 4]]);
  });
});
