import { expect, it } from "vitest";
import { canonicalJson } from "../../src/kernel/json.ts";

it("the sample of RFC 8785, section 3.2, is written as in section 3.2.4", () => {
  const sample = String.raw`{
    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
    "literals": [null, true, false]
  }`;
  expect(canonicalJson(JSON.parse(sample))).toBe(
    String.raw`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
  );
});

it("keys are sorted by UTF-16 code units, as in RFC 8785, section 3.2.3", () => {
  const sample = {
    "\u20ac": "Euro Sign",
    "\r": "Carriage Return",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One",
    "\ud83d\ude00": "Emoji: Grinning Face",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis",
  };
  expect(Object.values(JSON.parse(canonicalJson(sample)))).toHaveLength(7);
  const order = ["\\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"];
  const found = [...canonicalJson(sample).matchAll(/"([^"]*)":/g)].map((match) => match[1]);
  expect(found).toEqual(order);
});
