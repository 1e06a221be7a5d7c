import { execFile } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { keepHeapSmall } from "../../../src/kernel/memory/small-heap.ts";

const GARBAGE = join(import.meta.dirname, "../../../build/kernel/memory/garbage.js");
const SMALL_HEAP = join(import.meta.dirname, "../../../build/kernel/memory/small-heap.js");

/** Makes many objects that live for a moment, and answers with the bytes of the space for new ones. */
const THREAD = `
const { parentPort } = require("node:worker_threads");
const { getHeapSpaceStatistics } = require("node:v8");
parentPort.once("message", () => {
  let held = [];
  for (let i = 0; i < 2_000_000; i++) {
    held.push({ i });
    if (held.length === 50_000) held = [];
  }
  parentPort.postMessage(getHeapSpaceStatistics().find((space) => space.space_name === "new_space").space_size);
});`;

it("[REPO-12] at the end of a process, the flags of the engine are those of its start", async () => {
  const program = `
    import { cachedDataVersionTag } from "node:v8";
    import { collectGarbage } from "${GARBAGE}";
    import { keepHeapSmall } from "${SMALL_HEAP}";
    const atStart = cachedDataVersionTag();
    process.on("exit", () => console.log(cachedDataVersionTag() === atStart));
    collectGarbage();
    console.log(cachedDataVersionTag() === atStart);
    keepHeapSmall();
    console.log(cachedDataVersionTag() === atStart);`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
  expect(stdout).toBe("true\nfalse\ntrue\n");
});

it("[HEAP-2] the space of new objects keeps its size under load, though threads are started", async () => {
  keepHeapSmall();
  keepHeapSmall();
  // Every thread has such a space, which begins small.
  const thread = new Worker(THREAD, { eval: true });
  await once(thread, "online");
  thread.postMessage("begin");
  const [bytes] = await once(thread, "message");
  expect(bytes).toBeLessThanOrEqual(4 * 1024 * 1024);
});
