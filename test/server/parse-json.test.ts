import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DecodedBase64 } from "../../src/kernel/decoded-base64.ts";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { parseJson } from "../../src/server/parse-json.ts";

const MIB = 1024 * 1024;
/** Pieces as the reader of bodies makes them: each owns its memory. */
function piecesOf(text: string): Uint8Array<ArrayBuffer>[] {
  const bytes = Buffer.from(text);
  const pieces = [];
  for (let at = 0; at < bytes.length; at += MIB) pieces.push(new Uint8Array(bytes.subarray(at, at + MIB)));
  return pieces;
}
const large = " ".repeat(MIB + 1);

describe("parsing JSON", () => {
  it("[LOAD-3] aside gives the value that parsing here gives, whatever its names are", async () => {
    const names = fc.constantFrom("__proto__", "constructor", "toString", "data", "", "a");
    const texts = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom("x".repeat(70_000), "狐".repeat(70_000), "\ud800".repeat(70_000)),
    );
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.oneof(texts, fc.double(), fc.boolean(), fc.constant(null)),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.array(fc.tuple(names, tie("value")), { maxLength: 3 }).map((pairs) => Object.fromEntries(pairs)),
      ),
    }));
    await fc.assert(
      fc.asyncProperty(value, async (any) => {
        const text = JSON.stringify(any);
        const parsed = await parseJson(piecesOf(large + text));
        expect(JSON.stringify(parsed)).toBe(JSON.stringify(JSON.parse(text)));
        expect(Object.prototype).not.toHaveProperty("data");
      }),
      { numRuns: 12 },
    );
  });

  it("[LOAD-3] aside decodes long Base64 of one name, and leaves everything else as it was sent", async () => {
    const bytes = Buffer.alloc(200_000, "imgbatch");
    const good = bytes.toString("base64");
    const bad = { loose: `${good.slice(0, -4)} x==`, short: "aGk=", other: good };
    const sent = { data: good, inner: [{ data: bad.loose }, { data: bad.short }], note: bad.other };
    const parsed = (await parseJson(piecesOf(large + JSON.stringify(sent)), "data")) as typeof sent;
    expect(parsed.data).toBeInstanceOf(DecodedBase64);
    expect(parsed.data).toEqual(new DecodedBase64(bytes, sha256Hex(bytes)));
    expect({ ...parsed, data: good }).toEqual(sent);
    const here = await parseJson(piecesOf(JSON.stringify(sent)), "data");
    expect(here).toEqual(sent);
  });

  it("[LOAD-3] a text of many megabytes arrives whole, and others have their turn in between", async () => {
    const text = "é".repeat(5 * MIB);
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    const parsed = await parseJson(piecesOf(JSON.stringify({ a: text })));
    clearInterval(timer);
    expect((parsed as { a: string }).a === text).toBe(true);
    expect(turns).toBeGreaterThan(2);
  });
});
