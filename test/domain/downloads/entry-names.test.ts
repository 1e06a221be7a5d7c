import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { assignEntryNames } from "../../../src/domain/downloads/zip.ts";
import { safeFileName } from "../../../src/kernel/text.ts";

const names = (...ids: string[]) =>
  assignEntryNames(ids.map((customId) => ({ customId, imageIndex: 0, extension: "png" })));

describe("names in the ZIP", () => {
  it("[ZIP-5] are safe on every file system", () => {
    expect(
      ["conin$", "cover:1", ".hidden", "a..b", "con", "Nul.txt", "end. ", "\u0007", "...", ""].map(
        safeFileName,
      ),
    ).toEqual(["_conin$", "cover_1", "_hidden", "a_b", "_con", "_Nul.txt", "end", "_", "_", "_"]);
  });

  it("[ZIP-5] differ even where upper case and composed letters do not count", () => {
    expect(names("Stra\u00dfe", "STRASSE", "\u03c3\u03b1\u03c2", "\u03c3\u03b1\u03c3")).toEqual([
      "images/Stra\u00dfe.png",
      "images/STRASSE~2.png",
      "images/\u03c3\u03b1\u03c2.png",
      "images/\u03c3\u03b1\u03c3~2.png",
    ]);
    expect(names("A", "a", "\u00e9", "e\u0301")).toEqual([
      "images/A.png",
      "images/a~2.png",
      "images/\u00e9.png",
      "images/\u00e9~2.png",
    ]);
  });

  it("[ZIP-5] number the second image of an item", () => {
    const pair = [0, 1].map((imageIndex) => ({ customId: "x", imageIndex, extension: "webp" }));
    expect(assignEntryNames(pair)).toEqual(["images/x.webp", "images/x_2.webp"]);
  });

  it("[ZIP-5] are never long, never lead elsewhere and never collide, whatever the ids", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", maxLength: 200 }), { maxLength: 30 }), (ids) => {
        const assigned = names(...ids);
        expect(new Set(assigned.map((name) => name.normalize("NFC").toLowerCase())).size).toBe(ids.length);
        for (const name of assigned) {
          expect(name).toMatch(/^images\/[^/\\:*?"<>|]+\.png$/);
          expect(name).not.toMatch(/\p{Cc}|\/\.|\.\./u);
          expect(Buffer.byteLength(name)).toBeLessThanOrEqual("images/".length + 120 + ".png".length);
        }
      }),
    );
  });
});
