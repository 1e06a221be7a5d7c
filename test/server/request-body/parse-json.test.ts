import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { JsonParser } from "../../../src/server/request-body/parse-json.ts";
import { CHARACTER } from "../../support/characters.ts";

const MIB = 1024 * 1024;
const parser = new JsonParser();
/** Pieces as the reader of bodies makes them: each owns its memory. */
function piecesOf(text: string | Buffer): Uint8Array<ArrayBuffer>[] {
  const bytes = Buffer.from(text as string);
  const pieces = [];
  for (let at = 0; at < bytes.length; at += MIB) pieces.push(new Uint8Array(bytes.subarray(at, at + MIB)));
  return pieces;
}
const large = " ".repeat(MIB + 1);

describe("parsing JSON", () => {
  it("[LOAD-3] aside gives the value that parsing here gives, whatever its names are", async () => {
    const names = fc.constantFrom("__proto__", "constructor", "toString", "data", "", "a");
    const texts = fc.oneof(
      fc.string({ unit: CHARACTER }),
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
        const parsed = await parser.parse(piecesOf(large + text));
        expect(JSON.stringify(parsed)).toBe(JSON.stringify(JSON.parse(text)));
        expect(Object.prototype).not.toHaveProperty("data");
      }),
      { numRuns: 12 },
    );
  });

  it("[LOAD-3] a text of many megabytes arrives whole, and others have their turn in between", async () => {
    const text = "é".repeat(5 * MIB);
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    const parsed = await parser.parse(piecesOf(JSON.stringify({ a: text })));
    clearInterval(timer);
    expect((parsed as { a: string }).a === text).toBe(true);
    expect(turns).toBeGreaterThan(2);
  });

  it.each([
    ["here", ""],
    ["aside", large],
  ])("[LOAD-7] a problem of a text that was taken out is reported %s in its turn", async (_, padding) => {
    const problemOf = (text: string | Buffer, problem: "utf-8" | "json") =>
      parser.parse(piecesOf(text), problem).then(
        () => null,
        (error) => [error.code, error.message],
      );
    const deep = "[".repeat(65) + "]".repeat(65);
    expect(await problemOf(padding + deep, "utf-8")).toEqual([
      "INVALID_JSON",
      expect.stringContaining("nested deeper"),
    ]);
    expect(await problemOf(`${padding}[`, "utf-8")).toEqual(["INVALID_JSON", "The body is not valid UTF-8."]);
    const latin = Buffer.concat([Buffer.from(padding), Buffer.from([0xff])]);
    expect(await problemOf(latin, "json")).toEqual(["INVALID_JSON", "The body is not valid UTF-8."]);
    const [, message] = (await problemOf(`${padding}[]`, "json")) ?? [];
    expect(message).toContain("JSON");
    expect(message).not.toContain("UTF-8.");
  });
});
