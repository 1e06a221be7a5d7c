import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StringFinder, type StringPath } from "../../../src/server/request-body/string-finder.ts";
import { CHARACTER } from "../../support/characters.ts";

const PLACE: StringPath = [["items"], "*", ["images", "image_list"], "*", ["data"]];
const MIN_BYTES = 12;
const MARK = "«taken»";

/** The rest of a body that comes in these chunks, and the texts that were taken out, as they were written. */
function find(chunks: readonly Buffer[], place = PLACE): { rest: string; texts: string[] } {
  const finder = new StringFinder(place, MIN_BYTES);
  const rest: Buffer[] = [];
  const texts: string[] = [];
  let parts: Buffer[] | null = null;
  const take = (given: Iterable<ReturnType<typeof finder.read> extends Generator<infer P> ? P : never>) => {
    for (const part of given) {
      if (part.kind === "rest") {
        rest.push(Buffer.from(part.bytes));
        continue;
      }
      parts ??= [];
      parts.push(Buffer.from(part.bytes));
      if (!part.isEnd) continue;
      rest.push(Buffer.from(MARK));
      texts.push(String(Buffer.concat(parts)));
      parts = null;
    }
  };
  for (const chunk of chunks) take(finder.read(chunk));
  take(finder.end());
  return { rest: String(Buffer.concat(rest)), texts };
}

function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

/** The texts at the place of a value, in the order in which they stand. */
function textsAt(value: unknown, place: StringPath): string[] {
  const [step, ...further] = place;
  if (step === undefined) return typeof value === "string" ? [value] : [];
  if (value === null || typeof value !== "object" || Array.isArray(value) !== (step === "*")) return [];
  const inner = Object.entries(value).filter(([name]) => step === "*" || step.includes(name));
  return inner.flatMap(([, one]) => textsAt(one, further));
}

describe("finding long texts", () => {
  const names = fc.constantFrom("items", "images", "image_list", "data", "a", "\\", '"', "dátá");
  const texts = fc.oneof(
    fc.string({ unit: CHARACTER, maxLength: 30 }),
    fc.constantFrom('\\"\\"\\"\\"\\"', "x".repeat(40), "/".repeat(20), "short", '"]}', "\\".repeat(9)),
  );
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.oneof(texts, fc.integer(), fc.constant(null)),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(names, tie("value"), { maxKeys: 3, noNullPrototype: true }),
    ),
  }));
  const image = fc.oneof(
    value,
    fc.record({ data: texts, more: value }),
    fc.record({ a: value, data: texts }),
  );
  const item = fc.oneof(
    value,
    fc.record({ a: value, images: fc.array(image, { maxLength: 3 }) }),
    fc.record({ image_list: fc.array(image, { maxLength: 3 }), images: value }),
  );
  const body = fc.oneof(value, fc.record({ a: value, items: fc.array(item, { maxLength: 3 }), b: value }));

  it("[LOAD-7] takes out exactly those at the place, however they are written and wherever chunks end", () => {
    let taken = 0;
    const check = (sent: unknown, places: readonly number[], spaces: number, isEscaped: boolean) => {
      const plain = JSON.stringify(sent, null, spaces);
      // Slashes and letters may be written as escapes, names too.
      const text = isEscaped ? plain.replaceAll("/", "\\/").replaceAll("a", "\\u0061") : plain;
      const found = find(cut(Buffer.from(text), places));
      const expected = textsAt(sent, PLACE).map((one) => JSON.stringify(one).slice(1, -1));
      const written = isEscaped
        ? expected.map((one) => one.replaceAll("/", "\\/").replaceAll("a", "\\u0061"))
        : expected;
      expect(found.texts).toEqual(written.filter((one) => Buffer.byteLength(one) >= MIN_BYTES));
      const back = found.rest.split(MARK);
      expect(back.reduce((whole, part, i) => whole + found.texts[i - 1] + part)).toBe(text);
      taken += found.texts.length;
    };
    const places = fc.array(fc.nat(), { maxLength: 8 });
    const spaces = fc.constantFrom(0, 1);
    fc.assert(fc.property(body, places, spaces, fc.boolean(), check), { numRuns: 1500 });
    expect(taken).toBeGreaterThan(300);
  });

  it("[LOAD-7] gives the same for a body that is cut anywhere, and byte by byte", () => {
    const data = '\\"quoted\\" \\\\ \\u0041\\/ é 狐 \\\\';
    const text = `{"it\\u0065ms":[{"images":[{"data":"${data}","b":1},{"data":"short"}]},"items"],"data":"${data}"}`;
    const bytes = Buffer.from(text);
    const whole = find([bytes]);
    expect(whole).toEqual({
      rest: text.replace(`{"data":"${data}","b"`, `{"data":"${MARK}","b"`),
      texts: [data],
    });
    for (let at = 0; at <= bytes.length; at++) expect(find(cut(bytes, [at]))).toEqual(whole);
    expect(find(Array.from(bytes, (byte) => Buffer.from([byte])))).toEqual(whole);
  });

  it("[LOAD-7] takes each of several fields of one name, and leaves it to the parser which of them counts", () => {
    const [one, two] = ["1".repeat(20), "2".repeat(20)];
    const text = `{"items":[{"images":[{"data":"${one}","data":"${two}","data":7}]}]}`;
    const found = find([Buffer.from(text)]);
    expect(found.texts).toEqual([one, two]);
    expect(JSON.parse(found.rest)).toEqual({ items: [{ images: [{ data: 7 }] }] });
  });

  it.each([
    ["a text without an end", `{"items":[{"images":[{"data":"${"x".repeat(20)}`],
    ["a short text without an end", '{"items":[{"images":[{"data":"xx'],
    ["a text that ends in an escape", `{"items":[{"images":[{"data":"${"x".repeat(20)}\\`],
    ["closing brackets alone", `]}]}]}{"items":[{"images":[{"data":"${"x".repeat(20)}"}]}]}`],
    ["values without commas", `{"items":[{"images":[{"data":"${"x".repeat(20)}" "y" 3}]}]}`],
    ["names without values", `{"items":[{"images":[{"data","${"x".repeat(20)}"}]}]}`],
    ["a bad escape in a name", `{"items":[{"images":[{"\\data":"${"x".repeat(20)}"}]}]}`],
  ])("[LOAD-7] leaves %s what no parser takes", (_, text) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(() => JSON.parse(find([Buffer.from(text)]).rest)).toThrow();
  });
});
