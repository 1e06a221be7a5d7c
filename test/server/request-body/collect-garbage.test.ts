import { describe, expect, it } from "vitest";
import { MemoryReturn } from "../../../src/server/request-body/collect-garbage.ts";

describe("memory of large bodies", () => {
  it("[LOAD-6] is given back when all is quiet, and not before", async () => {
    const memory = new MemoryReturn();
    const freed = watchOne();
    let isQuiet = false;
    let asked = 0;
    const ask = () => {
      asked++;
      return isQuiet;
    };
    memory.soon(ask);
    memory.soon(ask);
    await expect.poll(() => asked).toBe(1);
    await new Promise((resolve) => setImmediate(resolve));
    expect(freed()).toBe(false);
    isQuiet = true;
    memory.soon(ask);
    await expect.poll(freed).toBe(true);
  });
});

/** Makes something that nothing keeps; answers whether it is gone. */
function watchOne(): () => boolean {
  const reference = new WeakRef({ bytes: new Uint8Array(1024) });
  return () => reference.deref() === undefined;
}
