import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { nameImages } from "../../../src/domain/downloads/zip.ts";
import type { OutputRecord } from "../../../src/domain/records.ts";
import { safeFileName } from "../../../src/kernel/text.ts";

/** The names of images of items with these ids: of each the first one, else those with these indexes. */
function names(ids: readonly string[], imageIndexes = [0]): string[] {
  const items = ids.map((customId, id) => ({ id, customId }));
  const outputs = items.flatMap(({ id }) =>
    imageIndexes.map((imageIndex) => ({ itemId: id, imageIndex, mimeType: "image/png", entryName: null })),
  );
  return nameImages(items, outputs as unknown as OutputRecord[]).map(({ entryName }) => entryName);
}

describe("names in the ZIP", () => {
  it("[ZIP-5] are safe on every file system", () => {
    expect(
      ["conin$", "cover:1", ".hidden", "a..b", "con", "Nul.txt", "end. ", "\u0007", "...", ""].map(
        safeFileName,
      ),
    ).toEqual(["_conin$", "cover_1", "_hidden", "a_b", "_con", "_Nul.txt", "end", "_", "_", "_"]);
  });

  it("[ZIP-5] differ even where upper case and composed letters do not count", () => {
    expect(names(["Stra\u00dfe", "STRASSE", "\u03c3\u03b1\u03c2", "\u03c3\u03b1\u03c3"])).toEqual([
      "images/Stra\u00dfe.png",
      "images/STRASSE~2.png",
      "images/\u03c3\u03b1\u03c2.png",
      "images/\u03c3\u03b1\u03c3~2.png",
    ]);
    expect(names(["A", "a", "\u00e9", "e\u0301"])).toEqual([
      "images/A.png",
      "images/a~2.png",
      "images/\u00e9.png",
      "images/\u00e9~2.png",
    ]);
  });

  it("[ZIP-5] number the second image of an item", () => {
    expect(names(["x"], [0, 1])).toEqual(["images/x.png", "images/x_2.png"]);
  });

  it("[ZIP-5] are never long, never lead elsewhere and never collide, whatever the ids", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", maxLength: 200 }), { maxLength: 30 }), (ids) => {
        const assigned = names(ids);
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
