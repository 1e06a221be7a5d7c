import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { jsonExcess } from "../../src/kernel/json.ts";

const deeper = (text: string, maxDepth: number) =>
  jsonExcess(Buffer.from(text), { maxDepth, maxElements: 1e9 }) === "depth";

describe("nesting of JSON", () => {
  it("is counted in lists and objects, and not in texts", () => {
    expect(deeper("[[{}]]", 3)).toBe(false);
    expect(deeper("[[{}]]", 2)).toBe(true);
    expect(deeper(JSON.stringify(["[[[[", '"[[[[', "\\"]), 1)).toBe(false);
  });

  it("agrees with the depth of any value", () => {
    const depthOf = (value: unknown): number =>
      value === null || typeof value !== "object" ? 0 : 1 + Math.max(0, ...Object.values(value).map(depthOf));
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const [text, depth] = [JSON.stringify(value), depthOf(value)];
        expect(deeper(text, depth)).toBe(false);
        if (depth > 0) expect(deeper(text, depth - 1)).toBe(true);
      }),
    );
  });

  it("elements are counted, and a text full of commas is one", () => {
    const excess = (text: string, maxElements: number) =>
      jsonExcess(Buffer.from(text), { maxDepth: 9, maxElements });
    expect(excess("[0,0,0]", 3)).toBeNull();
    expect(excess("[0,0,0]", 2)).toBe("elements");
    expect(excess("[[],[],{}]", 5)).toBe("elements");
    expect(excess(JSON.stringify([",,,,[[[["]), 1)).toBeNull();
  });

  it("long texts end where they end, whatever is escaped in them", () => {
    const tails = ["", "\\", "\\\\", '"', '\\"', '"\\', '"'.repeat(600), "\\".repeat(600), "[".repeat(600)];
    for (const length of [0, 254, 255, 256, 257, 1000]) {
      for (const tail of tails) {
        const text = "x".repeat(length) + tail;
        expect(deeper(JSON.stringify([text, text, [text]]), 2), `${length} and ${tail}`).toBe(false);
        expect(deeper(JSON.stringify([text, text, [text]]), 1), `${length} and ${tail}`).toBe(true);
      }
    }
  });
});
