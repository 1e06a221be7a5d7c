import { mkdir } from "node:fs/promises";
import { expect, it } from "vitest";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import { png } from "../../support/fake-service.ts";
import { type Bench, createBench } from "../../support/run-harness.ts";

const CAT = [{ custom_id: "cat", prompt: "a cat" }];
const gone = {
  status: 404,
  body: { error: { code: "BATCH_IMAGE_ITEM_NOT_FOUND", message: "No such image." } },
};

/** A batch of one item with two images, no ZIP, and none of its first image. */
async function withoutFirst(): Promise<Bench> {
  const bench = await createBench();
  await bench.submit(CAT, { onlyStart: true });
  for (const item of bench.fake.batches[0]?.items ?? []) item.images = [png("1"), png("2")];
  bench.fake.always(/\/download/, { status: 404 });
  bench.fake.always(/image_index=0/, gone);
  return bench;
}

it("a disk that refuses an image after another could not be had is what went wrong", async () => {
  const bench = await withoutFirst();
  await mkdir(bench.path("images/cat_2.png/in-the-way"), { recursive: true });
  await expect(bench.submit(CAT)).rejects.toMatchObject({ code: "SAVE_FAILED" });
});

it("a key that is refused after an image could not be had is what went wrong", async () => {
  const bench = await withoutFirst();
  bench.fake.always(/image_index=1/, { status: 401 });
  await expect(bench.submit(CAT)).rejects.toMatchObject({ code: "INVALID_API_KEY" });
});

it("a signal ends the work also after an image could not be had", async () => {
  const bench = await withoutFirst();
  const stop = new AbortController();
  const reason = new ImgbatchError("TERMINATED");
  bench.fake.always(/image_index=1/, { handle: () => stop.abort(reason) });
  await expect(bench.submit(CAT, { signal: stop.signal })).rejects.toBe(reason);
  expect(bench.fake.count(/content/)).toBe(2);
});

it("a key that is refused for one batch of a run is not tried on the others", async () => {
  const bench = await createBench();
  const three = ["a", "b", "c"].map((custom_id) => ({ custom_id, prompt: custom_id }));
  const limits = { itemsPerBatch: 1 };
  await bench.submit(three, { limits, onlyStart: true });
  bench.fake.always(/\/items\?/, { status: 401 });
  await expect(bench.submit(three, { limits })).rejects.toMatchObject({ code: "INVALID_API_KEY" });
  expect(bench.fake.count(/\/items\?/)).toBe(1);
});
