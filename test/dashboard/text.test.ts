import fc from "fast-check";
import stringWidth from "string-width";
import { describe, expect, it } from "vitest";
import { bar, dollars, inCells, sparkline } from "../../src/dashboard/text.ts";
import { CHARACTER } from "../support/characters.ts";

describe("text in cells", () => {
  it("takes exactly its width, whatever the script, and passes no control character on", () => {
    const text = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 80 }),
      fc.string({ unit: CHARACTER, maxLength: 40 }),
      fc.constantFrom(
        "一只在雪地里奔跑的红色狐狸和它的朋友",
        "👩‍👩‍👧‍👦🦊🦊 party",
        "e\u0301e\u0301",
        "a\x1b[31mb\u0007c",
        "\u{1d158}\u{1d165}\u{1d16e} ",
        "\u{1d158}\u{1d165}\u{1d16e}\u{1d158}\u{1d165}\u{1d16e}",
      ),
    );
    fc.assert(
      fc.property(
        text,
        fc.integer({ min: 1, max: 60 }),
        fc.constantFrom("left", "right"),
        (value, width, align) => {
          const cells = inCells(value, width, align as "left" | "right");
          expect(stringWidth(cells)).toBe(width);
          expect(cells).not.toMatch(/\p{Cc}/u);
        },
      ),
      { numRuns: 200 },
    );
  });

  it("shows what has room whole, and marks what was cut", () => {
    expect(inCells("fox", 5)).toBe("fox  ");
    expect(inCells("fox", 5, "right")).toBe("  fox");
    expect(inCells("a long name", 6)).toBe("a lon…");
    expect(inCells("红色狐狸", 5)).toBe("红色…");
  });
});

describe("small pictures in text", () => {
  it("a bar is never full before the end, and shows any failure", () => {
    const width = ({ good, bad, rest }: ReturnType<typeof bar>) => good.length + bad.length + rest.length;
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (done, failed) => {
          const parts = bar(10, done, failed * done);
          expect(width(parts)).toBe(10);
          if (done < 1) expect(parts.rest).not.toBe("");
        },
      ),
    );
    expect(bar(10, 1)).toEqual({ good: "█".repeat(10), bad: "", rest: "" });
    expect(bar(10, 1, 0.001).bad).toBe("▒");
  });

  it("the sparkline is as wide as asked, and silence is empty", () => {
    expect(sparkline([0, 1, 2, 4, 8], 8)).toBe("    ▁▂▄█");
    expect(sparkline([0, 0, 0], 5)).toBe("     ");
    expect(sparkline([1, 1, 1, 1], 2)).toBe("██");
  });
});

describe("numbers", () => {
  it("are short and exact enough", () => {
    const amounts = [null, 0, 33_500, 1_240_000, 100_000];
    const sums = ["–", "$0.00", "$0.03", "$1.24", "$0.10"];
    expect(amounts.map((amount) => dollars(amount, "sum"))).toEqual(sums);
  });
});
