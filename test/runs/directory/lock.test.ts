import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { getBatch } from "../../../src/client/batches.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { recordInRunState, withRunLock } from "../../../src/runs/directory/claim.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { startNode } from "../../support/processes.ts";
import { createRunHarness } from "../../support/run-harness.ts";
import { tempDir } from "../../support/temp-dir.ts";

it("[RUN-21] of two commands in one directory the second gets an error, and the directory is free when the first has ended", async () => {
  const dir = await tempDir();
  const clock = new InstantClock();
  const failing = withRunLock(dir, { clock }, async () => {
    await expect(withRunLock(dir, { clock }, async () => 1)).rejects.toMatchObject({
      code: "DIRECTORY_IN_USE",
      message: expect.stringContaining(dir),
    });
    throw new Error("the work failed");
  });
  await expect(failing).rejects.toThrow("the work failed");
  expect(clock.sleepsMs.reduce((sum, ms) => sum + ms, 0)).toBe(2000);
  expect(await withRunLock(dir, { clock }, async () => 2)).toBe(2);
});

it("[RUN-21] a process that is killed leaves the directory free", async () => {
  const dir = await tempDir();
  const script = join(dir, "hold.mjs");
  const lock = new URL("../../../build/runs/directory/claim.js", import.meta.url);
  const clock = new URL("../../../build/kernel/clock.js", import.meta.url);
  await writeFile(
    script,
    `import { withRunLock } from ${JSON.stringify(lock)}; import { systemClock } from ${JSON.stringify(clock)};
    await withRunLock(${JSON.stringify(dir)}, { clock: systemClock }, async () => {
      console.log("locked");
      await systemClock.sleep(60_000);
    });`,
  );
  const holder = startNode([script]);
  expect(await holder.line()).toBe("locked");
  const none = { clock: systemClock, patienceMs: 0 };
  await expect(withRunLock(dir, none, async () => 1)).rejects.toMatchObject({ code: "DIRECTORY_IN_USE" });
  holder.child.kill("SIGKILL");
  await holder.exited;
  expect(await withRunLock(dir, none, async () => 2)).toBe(2);
});

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
