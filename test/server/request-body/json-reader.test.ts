import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FIXED_LIMITS } from "../../../src/contract/limits.ts";
import { JsonReader, plainFormat, type Shape } from "../../../src/server/request-body/json-reader.ts";
import { CHARACTER } from "../../support/characters.ts";

const MIB = 1024 * 1024;
const CODE = "BATCH_IMAGE_INVALID_ITEMS";

function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

/** The value of a text that comes in these chunks, and its long images as they were written. */
function read(chunks: Iterable<Buffer>, shape: Shape = "any", promptChars = 0) {
  const format = { ...plainFormat(shape, CODE), prompts: 1, promptChars };
  const reader = new JsonReader(format, { takesImages: true });
  const images = new Map<string, string>();
  for (const chunk of chunks) {
    for (const { name, bytes } of reader.read(chunk)) images.set(name, (images.get(name) ?? "") + bytes);
  }
  return { value: reader.end(), images, keptBytes: reader.keptBytes };
}

/** The error of a text, of which no more is read than is needed. */
function refusalOf(chunks: Iterable<Buffer>, shape?: Shape) {
  try {
    read(chunks, shape);
  } catch (error) {
    return error as Error & { code: string; param?: string };
  }
  throw new Error("the text was taken");
}

const named = fc.constantFrom("__proto__", "constructor", "data", "", "a", "dátá", "\\", '"');
const texts = fc.oneof(
  fc.string({ unit: CHARACTER, maxLength: 30 }),
  fc.constantFrom("x".repeat(20_000), "狐".repeat(9000), "\ud800", '\\"\\"', '"]}', "\\".repeat(9), "é\n\0"),
);
const { value: anyValue } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.oneof(texts, fc.double({ noDefaultInfinity: true, noNaN: true }), fc.boolean(), fc.constant(null)),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.array(fc.tuple(named, tie("value")), { maxLength: 3 }).map((pairs) => Object.fromEntries(pairs)),
  ),
}));
const places = fc.array(fc.nat(), { maxLength: 8 });

describe("reading JSON as it arrives", () => {
  it("gives the value that parsing the whole gives, wherever its chunks end", () => {
    const check = (given: unknown, at: readonly number[], spaces: number, isEscaped: boolean) => {
      const plain = JSON.stringify(given, null, spaces);
      const text = isEscaped ? plain.replaceAll("/", "\\/").replaceAll("o", "\\u006f") : plain;
      const { value } = read(cut(Buffer.from(text), at));
      expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(plain)));
      expect(Object.prototype).not.toHaveProperty("data");
    };
    fc.assert(fc.property(anyValue, places, fc.constantFrom(0, 1), fc.boolean(), check), { numRuns: 500 });
  });

  it("takes exactly what a parser takes, however a text is damaged, and also where nothing is kept", () => {
    const utf8 = new TextDecoder("utf-8", { fatal: true });
    const odd = fc.constantFrom(
      ...'{}[],:"\\ \n\0-+.0eEtrue/u\x7f',
      "\xff",
      "\xc3\xa9",
      "NaN",
      "01",
      "1.",
      '""',
    );
    let taken = 0;
    const check = (given: unknown, wrong: string, place: number, removed: number, at: readonly number[]) => {
      const whole = Buffer.from(JSON.stringify({ a: given }));
      const cutAt = place % whole.length;
      const text = Buffer.concat([
        whole.subarray(0, cutAt),
        Buffer.from(wrong, "latin1"),
        whole.subarray(cutAt + removed),
      ]);
      let expected: unknown;
      try {
        expected = JSON.parse(utf8.decode(text));
      } catch {
        for (const shape of ["any", {}] as const) {
          // A text without its first quote can be a name that is too long.
          expect(["INVALID_JSON", CODE]).toContain(refusalOf(cut(text, at), shape).code);
        }
        return;
      }
      taken++;
      expect(JSON.stringify(read(cut(text, at)).value)).toBe(JSON.stringify(expected));
      read(cut(text, at), {});
    };
    fc.assert(fc.property(anyValue, odd, fc.nat(), fc.nat({ max: 2 }), places, check), { numRuns: 2000 });
    expect(taken).toBeGreaterThan(100);
  });

  it("takes out the long texts of its images alone, and of several of one name the last counts", () => {
    const shape = { items: [{ images: [{ data: "image" }], more: "any" }] } as const;
    const [one, two] = ["1\\/".repeat(6000), "2".repeat(20_000)];
    const image = (data: string) => `{"d\\u0061ta":"${data}","b":1}`;
    const text = `{"items":[{"images":[${image(one)},${image("short")},{"data":"${two}","data":"${one}"}],"more":"${two}"}],"data":"${two}"}`;
    const bytes = Buffer.from(text);
    for (const chunks of [
      [bytes],
      cut(bytes, [11, 40, 30_000]),
      Array.from(bytes, (byte) => Buffer.from([byte])),
    ]) {
      const { value, images } = read(chunks, shape);
      const [first, , last] = images.keys();
      expect([...images.values()]).toEqual([one, two, one]);
      expect(value).toEqual({
        items: [{ images: [{ data: first, b: 1 }, { data: "short", b: 1 }, { data: last }], more: two }],
        data: "2",
      });
    }
  });

  it("keeps no more of a text or a field than its format asks for", () => {
    const shape = { prompt: "prompt", list: ["any"], text: "any" } as const;
    const pad = "狐".repeat(MIB);
    const text = `{"pad":"${pad}","no":null,"deep":{"a":["${pad}",{"b":[[]]}]},"n":7,"list":{"a":"${pad}"},"text":["${pad}"],"prompt":"${"🦊".repeat(MIB)}"}`;
    // The list of `text` is kept, so the text in it is bounded.
    expect(refusalOf([Buffer.from(text)], shape)).toMatchObject({ code: CODE, param: "text[0]" });
    const { value, keptBytes } = read([Buffer.from(text.replace('"text"', '"x"'))], shape, 100);
    const { prompt, ...rest } = value as { prompt: string };
    expect(rest).toEqual({ pad: "狐", no: null, deep: {}, n: 7, list: {}, x: [] });
    expect(prompt).toBe("🦊".repeat(prompt.length / 2));
    expect(prompt.length).toBeGreaterThan(200);
    expect(keptBytes).toBeLessThan(MIB);
  });

  const long = "n".repeat(FIXED_LIMITS.jsonNameBytes + 1);
  const list = (count: number) => `[${'"a",'.repeat(count)}"a"]`;
  const fields = (count: number) => `{${Array.from({ length: count }, (_, i) => `"f${i}":1`)}}`;
  it.each([
    [
      "a name that is too long",
      `{"a":[{"${long}":1}]}`,
      /^a\[0\]\.n{40}…: the name of a field has at most 256 bytes$/,
    ],
    ["a name without end", `{"${"狐".repeat(MIB)}`, /^狐{40}…: the name/],
    [
      "a text that is too long",
      `{"a":{"b":["${"x".repeat(64 * 1024 + 1)}"]}}`,
      /^a\.b\[0\]: is too long: .* at most 65536 bytes$/,
    ],
    ["too many fields", `{"x":${fields(10_000)}}`, /^x\.f9999: a body has at most 10000 fields/],
    ["too many fields that are not kept", `{"unknown":${fields(10_000)}}`, /^unknown\.f9999: a body has/],
    [
      "too many entries of a list",
      `{"list":${list(10_000)}}`,
      /^list\[10000\]: a body has at most 10000 fields/,
    ],
    [
      "too much text in all",
      `{"x":[${`"${"x".repeat(60_000)}",`.repeat(80)}1]}`,
      /^x\[69\]: the texts of a body take at most 4 MiB/,
    ],
    ["a number without end", `{"a":${"1".repeat(5000)}}`, /^a: a number has at most 1024 characters$/],
  ])("refuses %s with the path of the field, cut to a short length", (_, text, message) => {
    const shape = { a: "any", x: "any", list: ["any"] } as const;
    for (const chunks of [[Buffer.from(text)], cut(Buffer.from(text), [9, 100, 4000, 20_000])]) {
      const error = refusalOf(chunks, shape);
      expect([error.code, error.message]).toEqual([CODE, expect.stringMatching(message)]);
      expect(error.message).toContain(error.param);
    }
  });

  it("a path of many long names is cut, and 64 levels are taken", () => {
    const [name, levels] = ["n".repeat(200), FIXED_LIMITS.jsonDepth];
    const nest = (count: number, inner: string) => `{"${name}":`.repeat(count) + inner + "}".repeat(count);
    expect(refusalOf([Buffer.from(nest(60, `"${"x".repeat(70_000)}"`))]).message.length).toBeLessThan(400);
    expect(JSON.stringify(read([Buffer.from(nest(levels, "1"))]).value)).toBe(nest(levels, "1"));
    const error = refusalOf([Buffer.from(nest(levels + 1, "1"))]);
    expect([error.code, error.message]).toEqual([
      "INVALID_JSON",
      "The body is nested deeper than 64 levels.",
    ]);
  });
});
