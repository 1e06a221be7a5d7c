import { describe, expect, it } from "vitest";
import { MemoryReturn } from "../../../src/server/request-body/body-budgets.ts";

describe("memory of large bodies", () => {
  it("[LOAD-6] is given back when all is quiet, and not before", async () => {
    let collected = 0;
    const memory = new MemoryReturn(() => collected++);
    let isQuiet = false;
    let asked = 0;
    const ask = () => {
      asked++;
      return isQuiet;
    };
    memory.soon(ask);
    memory.soon(ask);
    await expect.poll(() => asked).toBe(1);
    expect(collected).toBe(0);
    isQuiet = true;
    memory.soon(ask);
    await expect.poll(() => collected).toBe(1);
    expect(asked).toBe(2);
  });

  it("[LOAD-6] is collected by V8, which releases what nothing refers to", async () => {
    const isReleased = watchOne();
    new MemoryReturn().soon(() => true);
    await expect.poll(isReleased).toBe(true);
  });
});

/** Makes an object that nothing refers to. Returns a function that reports whether V8 has released it. */
function watchOne(): () => boolean {
  const reference = new WeakRef({ bytes: new Uint8Array(1024) });
  return () => reference.deref() === undefined;
}
