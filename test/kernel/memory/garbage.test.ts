import { cachedDataVersionTag } from "node:v8";
import { expect, it } from "vitest";
import { collectGarbage, countPassedOn } from "../../../src/kernel/memory/garbage.ts";

const MIB = 1024 * 1024;

it("[HEAP-1] the buffers of a stream that is only passed on are given back after a few megabytes", async () => {
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  for (let i = 0; i < 256; i++) {
    countPassedOn(Buffer.alloc(MIB / 4).length);
    await new Promise(setImmediate);
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }
  expect(most).toBeLessThan(12 * MIB);
});

it("[REPO-12] a collection leaves the flags under which code is compiled as they were", () => {
  const before = cachedDataVersionTag();
  collectGarbage();
  expect(cachedDataVersionTag()).toBe(before);
});
