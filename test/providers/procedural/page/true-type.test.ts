import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { type OutlineStep, TrueTypeFont } from "../../../../src/providers/procedural/page/true-type.ts";

const FILE = createRequire(import.meta.url).resolve("dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf");
const font = new TrueTypeFont(readFileSync(FILE));
const glyphOf = (character: string) => font.glyphOf(character.codePointAt(0) ?? 0);
const outlineOf = (character: string) => font.outlineOf(glyphOf(character));

/** The corners of the box around an outline, control points included. */
function boxOf(steps: readonly OutlineStep[]): number[] {
  const xs = steps.flatMap((step) => (step.type === "Q" ? [step.x1, step.x] : [step.x]));
  const ys = steps.flatMap((step) => (step.type === "Q" ? [step.y1, step.y] : [step.y]));
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

describe("a TrueType font", () => {
  it("[DRAW-16] gives the outline and the width of each letter, straight or curved, simple or compound", () => {
    expect(font.unitsPerEm).toBe(2048);
    expect(outlineOf("I").map(({ type }) => type)).toEqual(["M", "L", "L", "L", "L"]);
    expect(boxOf(outlineOf("I"))).toEqual([188, 0, 573, 1493]);
    expect(font.advanceOf(glyphOf("I"))).toBe(762);
    expect(outlineOf("o").filter(({ type }) => type === "Q").length).toBeGreaterThan(8);
    expect(outlineOf(" ")).toEqual([]);

    // An e and its accent above it.
    const [e, accented] = [outlineOf("e"), outlineOf("é")];
    expect(JSON.stringify(accented)).toContain(JSON.stringify(e).slice(1, -1));
    expect(boxOf(accented)[3]).toBeGreaterThan(boxOf(e)[3] ?? 0);
    // The brackets of a pair mirror each other.
    const [open, close] = [boxOf(outlineOf("⟨")), boxOf(outlineOf("⟩"))];
    expect([open[1], open[3]]).toEqual([close[1], close[3]]);
  });

  it("[DRAW-16] every contour of every letter ends where it begins", () => {
    let letters = 0;
    for (let codePoint = 0; codePoint < 0x2_0000; codePoint++) {
      const glyph = font.glyphOf(codePoint);
      if (glyph === 0) continue;
      letters++;
      let start: OutlineStep | undefined;
      let last: OutlineStep | undefined;
      for (const step of [...font.outlineOf(glyph), { type: "M" as const, x: 0, y: 0 }]) {
        if (step.type === "M") {
          if ([start?.x, start?.y].join() !== [last?.x, last?.y].join())
            expect.fail(`U+${codePoint.toString(16)}`);
          start = step;
        }
        last = step;
      }
    }
    expect(letters).toBeGreaterThan(5000);
  });

  it("[DRAW-16] another kind of font is an error, and a letter that it lacks is none", () => {
    expect(glyphOf("🦊")).toBe(0);
    expect(() => new TrueTypeFont(Buffer.alloc(64))).toThrow("no table cmap");
  });
});
