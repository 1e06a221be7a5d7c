import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { getBatch } from "../../../src/client/batches.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { recordInRunState, withRunLock } from "../../../src/runs/directory/claim.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { createRunHarness } from "../../support/run-harness.ts";
import { tempDir } from "../../support/temp-dir.ts";

it("[RUN-21] who only looks at a run notes what it saw, and leaves the run state to the one that works on it", async () => {
  const harness = await createRunHarness();
  const { batches } = await harness.submit([{ prompt: "a" }], { onlyStart: true });
  const id = batches[0]?.id ?? "";
  await getBatch(harness.http, id);
  const { batch } = await getBatch(harness.http, id);
  await withRunLock(harness.dir, { clock: systemClock }, () =>
    recordInRunState(harness.dir, [batch], systemClock),
  );
  expect((await harness.runState()).batches[0]?.status).toBe("queued");
  await recordInRunState(harness.dir, [batch], systemClock);
  expect((await harness.runState()).batches[0]?.status).toBe("completed");
});

it("directories that were made for work that leaves nothing do not stay; those that were there do", async () => {
  const root = await tempDir();
  const clock = new InstantClock();
  const dir = join(root, "a", "b");
  await expect(withRunLock(dir, { clock }, async () => Promise.reject(new Error("refused")))).rejects.toThrow(
    "refused",
  );
  expect(await readdir(root)).toEqual([]);
  await mkdir(join(root, "a"));
  await withRunLock(dir, { clock }, async () => {});
  expect(await readdir(root, { recursive: true })).toEqual(["a"]);
  await withRunLock(dir, { clock }, () => writeFile(join(dir, "kept"), ""));
  expect(await readdir(dir)).toEqual(["kept"]);
});
