import { once } from "node:events";
import { cachedDataVersionTag, setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { afterEach, beforeEach, expect, it } from "vitest";
import { keepHeapSmall } from "../../../src/kernel/memory/small-heap.ts";

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

const { execArgv } = process;

beforeEach(() => {
  // Those of the tests, which choose a size.
  process.execArgv = [];
});

afterEach(() => {
  process.execArgv = execArgv;
  // Puts the flags back, so that the heap of the tests that follow grows as it did.
  setFlagsFromString("--semi-space-growth-factor=2");
  setFlagsFromString("--heap-growing-percent=0");
});

it("[HEAP-2] leaves a heap alone whose size was chosen", () => {
  process.execArgv = ["--max-semi-space-size=32"];
  const atStart = cachedDataVersionTag();
  keepHeapSmall();
  expect(cachedDataVersionTag()).toBe(atStart);
});

it("[HEAP-2] the space of new objects keeps its size under load, though threads are started", async () => {
  keepHeapSmall();
  keepHeapSmall();
  // Every thread has such a space, which begins small, except where the tests ask for a large one.
  setFlagsFromString("--min-semi-space-size=0");
  const thread = new Worker(THREAD, { eval: true });
  await once(thread, "online");
  thread.postMessage("begin");
  const [bytes] = await once(thread, "message");
  expect(bytes).toBeLessThanOrEqual(4 * 1024 * 1024);
});
