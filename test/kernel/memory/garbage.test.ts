import { expect, it } from "vitest";
import { countPassedOn } from "../../../src/kernel/memory/garbage.ts";

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
