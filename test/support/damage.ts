import fc from "fast-check";

/** Things that stand where something else should. */
const WRONG = fc.constantFrom<unknown>(
  null,
  "",
  "x",
  "\ud800",
  "../../etc/passwd",
  true,
  0,
  -1,
  1.5,
  1e9,
  1e308,
  Number.MAX_SAFE_INTEGER,
  [],
  [null],
  {},
  { x: 1 },
  [[[]]],
);

export type Damage = (text: string) => string | Buffer;

/** Replaces, removes or adds a value somewhere in one of the JSON values of a file. */
export const inside = (isLines: boolean): fc.Arbitrary<Damage> =>
  fc
    .record({
      seed: fc.nat(),
      what: fc.constantFrom("replace", "replace", "remove", "add", "repeat"),
      value: WRONG,
    })
    .map(({ seed, what, value }) => (text) => {
      const values: unknown[] = isLines
        ? text
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line))
        : [JSON.parse(text)];
      const places: [Record<string, unknown>, string][] = [];
      const visit = (holder: object) => {
        for (const [key, held] of Object.entries(holder)) {
          places.push([holder as Record<string, unknown>, key]);
          if (typeof held === "object" && held !== null) visit(held);
        }
      };
      visit(values);
      const [holder, key] = places[seed % places.length] ?? [{}, ""];
      if (what === "replace") holder[key] = value;
      else if (what === "remove") Array.isArray(holder) ? holder.splice(Number(key), 1) : delete holder[key];
      else if (what === "repeat" && Array.isArray(holder)) holder.push(holder[Number(key)]);
      else if (Array.isArray(holder)) holder.unshift(value);
      else holder.unexpected = value;
      return values.map((each) => `${JSON.stringify(each)}\n`).join("");
    });

/** Cuts, overwrites or replaces the bytes of a file. */
export const bytes: fc.Arbitrary<Damage> = fc.oneof(
  fc.nat().map(
    (at): Damage =>
      (text) =>
        text.slice(0, at % (text.length + 1)),
  ),
  fc.tuple(fc.nat(), fc.uint8Array({ minLength: 1, maxLength: 6 })).map(
    ([at, junk]): Damage =>
      (text) => {
        const data = Buffer.from(text);
        data.set(junk.subarray(0, Math.max(0, data.length - (at % data.length))), at % data.length);
        return data;
      },
  ),
  fc.constantFrom<Damage>(
    () => "",
    () => "null\n",
    () => "[]\n",
    () => '0\nnull\n"x"\n',
    (text) => `\ufeff${text}`,
    (text) => Buffer.from(`\ufeff${text}`, "utf16le"),
    (text) => text.replaceAll("\n", "\r\n"),
    (text) => `${text}${text}`,
    (text) => `null\n${text}`,
    (text) => `${text}{"custom_id":`,
    (text) => text.replace(/\d+/, "9".repeat(400)),
    (text) => text.replace(/"/, ""),
    (text) => Buffer.concat([Buffer.from(text), Buffer.from([0xff, 0xfe, 0x00])]),
  ),
);
