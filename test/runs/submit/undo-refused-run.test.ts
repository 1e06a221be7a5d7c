import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { png } from "../../support/fake-service.ts";
import { createBench } from "../../support/run-harness.ts";

const ONE = [{ custom_id: "cat", prompt: "a cat" }];
const MENDED = [{ custom_id: "cat", prompt: "a better cat" }];

const refusal = (status: number, code: string, message: string, param?: string) => ({
  status,
  body: { error: { code, message, param } },
});
const badItems = refusal(400, "BATCH_IMAGE_INVALID_ITEMS", "no");

it("[RUN-30] a run whose first batch was refused outright leaves nothing, so that a mended input takes the directory", async () => {
  const bench = await createBench();
  await writeFile(join(bench.root, "r.png"), png("r"));
  await mkdir(bench.dir);
  await writeFile(bench.path("notes.txt"), "mine");
  for (const answer of [badItems, refusal(422, "unprocessable", "no"), refusal(403, "forbidden", "no")]) {
    bench.fake.fault(/^POST/, answer);
    const lines = [{ ...ONE[0], reference_images: ["r.png"] }];
    await expect(bench.submit(lines)).rejects.toMatchObject({ httpStatus: answer.status });
    expect(await readdir(bench.dir)).toEqual(["notes.txt"]);
  }
  expect(await bench.submit(MENDED)).toMatchObject({ fetchedCount: 1 });
});

it.each([
  ["a conflict of the key", refusal(409, "BATCH_IMAGE_IDEMPOTENCY_CONFLICT", "used")],
  ["a fault of the service", refusal(500, "INTERNAL_ERROR", "oh")],
])("[RUN-30] %s leaves the intent", async (_name, answer) => {
  const bench = await createBench();
  bench.fake.fault(/^POST/, answer);
  await expect(bench.submit(ONE)).rejects.toMatchObject({ httpStatus: answer.status });
  expect((await bench.runState()).batches[0]?.state).not.toBe("created");
  await expect(bench.submit(MENDED)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
});

it("[RUN-30] an intent of an earlier call stays, and so does a run of which a batch was made", async () => {
  const bench = await createBench();
  bench.fake.fault(/^POST/, refusal(500, "INTERNAL_ERROR", "oh"), badItems);
  await expect(bench.submit(ONE)).rejects.toMatchObject({ httpStatus: 500 });
  await expect(bench.submit(ONE)).rejects.toMatchObject({ httpStatus: 400 });
  expect(await readdir(bench.dir)).toContain("imgbatch.json");

  const other = await createBench();
  const lines = [...ONE, { custom_id: "dog", prompt: "a dog" }];
  other.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, badItems);
  await expect(other.submit(lines, { limits: { itemsPerBatch: 1 } })).rejects.toMatchObject({
    httpStatus: 400,
  });
  expect((await other.runState()).batches.map(({ state }) => state)).toEqual(["created", "intent"]);
});

it("[RUN-31] the error for an item that the service blames names the line of the prompt file, in its batch, with the image's path", async () => {
  const bench = await createBench();
  await writeFile(join(bench.root, "r.png"), png("r"));
  const lines = [
    "// two batches",
    ...ONE,
    { custom_id: "dog", prompt: "a dog" },
    { custom_id: "bat", prompt: "a bat", reference_images: ["r.png"] },
  ];
  const field = "items[0].reference_images[0].data";
  const text = `${field}: the image is damaged`;
  bench.fake.fault(/^POST/, { lie: <T>(answer: T) => answer }, { lie: <T>(answer: T) => answer });
  bench.fake.fault(/^POST/, refusal(400, "BATCH_IMAGE_INVALID_REFERENCE_IMAGE", text, field));
  await expect(bench.submit(lines, { limits: { itemsPerBatch: 1 } })).rejects.toMatchObject({
    code: "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
    message: text,
    param: field,
    details: [
      `prompts.jsonl:4: reference_images[0].data: ${join(bench.root, "r.png")}: the image is damaged`,
    ],
  });
});

it("[RUN-31] an unknown item in the service's error is reported as the service names it", async () => {
  const bench = await createBench();
  bench.fake.fault(/^POST/, refusal(400, "BATCH_IMAGE_INVALID_ITEMS", "items[7].prompt: no"));
  await expect(bench.submit(ONE)).rejects.toMatchObject({
    message: "items[7].prompt: no",
    details: undefined,
  });
});
