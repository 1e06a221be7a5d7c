import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Base64Decoder, type Base64Rules, isBase64 } from "../../src/kernel/base64.ts";

/** RFC 4648, both alphabets, with padding or without. */
const LENIENT = /^(?=.)(?:[\w+/-]{4})*(?:[\w+/-]{2}(?:==)?|[\w+/-]{3}=?)?$/;

/** Decodes parts one after the other; null when they are not Base64. */
function decodeParts(parts: readonly string[], rules: Base64Rules): Buffer | null {
  const decoder = new Base64Decoder(rules);
  const memory = Buffer.alloc(parts.reduce((sum, part) => sum + Base64Decoder.bytesFor(part.length), 3));
  let size = 0;
  for (const part of parts) size += decoder.add(part, memory, size);
  size += decoder.end(memory, size);
  return decoder.isValid ? memory.subarray(0, size) : null;
}

describe("Base64 in parts", () => {
  it("is taken or refused, and decoded, as it would be as a whole", () => {
    const good = fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => Buffer.from(bytes));
    const texts = fc.oneof(
      good.map((bytes) => bytes.toString("base64")),
      good.map((bytes) => bytes.toString("base64url")),
      good.map((bytes) => `${bytes.toString("base64")}=`),
      fc.tuple(good, good).map((both) => both.map((bytes) => bytes.toString("base64")).join("")),
      fc.string({ unit: fc.constantFrom("A", "B", "/", "+", "-", "_", "="), minLength: 1, maxLength: 12 }),
      fc
        .tuple(good, fc.nat(), fc.constantFrom(" ", "\n", "=", "é", "ł", "\0", "%", "B"))
        .map(([bytes, at, wrong]) => {
          const text = bytes.toString("base64");
          return text.slice(0, at % text.length) + wrong + text.slice((at % text.length) + 1);
        }),
    );
    const outcomes = { taken: 0, refused: 0 };
    const check = (text: string, cuts: readonly number[], rules: Base64Rules) => {
      const places = [0, ...cuts.map((cut) => cut % (text.length + 1)).sort((a, b) => a - b), text.length];
      const parts = places.slice(1).map((place, i) => text.slice(places[i], place));
      const bytes = Buffer.from(text, "base64");
      const expected = isBase64(text, bytes, rules) ? bytes : null;
      expect(decodeParts(parts, rules)).toEqual(expected);
      if (rules === "lenient") expect([text, expected !== null]).toEqual([text, LENIENT.test(text)]);
      outcomes[expected ? "taken" : "refused"]++;
    };
    const cuts = fc.array(fc.nat(), { maxLength: 6 });
    const rules = fc.constantFrom<Base64Rules>("strict", "lenient");
    fc.assert(fc.property(texts, cuts, rules, check), { numRuns: 2000 });
    expect(Math.min(outcomes.taken, outcomes.refused)).toBeGreaterThan(200);
  });
});
