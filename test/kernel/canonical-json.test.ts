import { expect, it } from "vitest";
import { canonicalJson, type JsonValue } from "../../src/kernel/json.ts";

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

const NUMBERS: [bits: string, text: string][] = [
  ["0000000000000000", "0"],
  ["8000000000000000", "0"],
  ["0000000000000001", "5e-324"],
  ["8000000000000001", "-5e-324"],
  ["7fefffffffffffff", "1.7976931348623157e+308"],
  ["ffefffffffffffff", "-1.7976931348623157e+308"],
  ["4340000000000000", "9007199254740992"],
  ["c340000000000000", "-9007199254740992"],
  ["4430000000000000", "295147905179352830000"],
  ["44b52d02c7e14af5", "9.999999999999997e+22"],
  ["44b52d02c7e14af6", "1e+23"],
  ["44b52d02c7e14af7", "1.0000000000000001e+23"],
  ["444b1ae4d6e2ef4e", "999999999999999700000"],
  ["444b1ae4d6e2ef4f", "999999999999999900000"],
  ["444b1ae4d6e2ef50", "1e+21"],
  ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
  ["3eb0c6f7a0b5ed8d", "0.000001"],
  ["41b3de4355555553", "333333333.3333332"],
  ["41b3de4355555554", "333333333.33333325"],
  ["41b3de4355555555", "333333333.3333333"],
  ["41b3de4355555556", "333333333.3333334"],
  ["41b3de4355555557", "333333333.33333343"],
  ["becbf647612f3696", "-0.0000033333333333333333"],
  ["43143ff3c1cb0959", "1424953923781206.2"],
];

it("numbers are written as in RFC 8785, appendix B", () => {
  const written = NUMBERS.map(([bits]) => [bits, canonicalJson(Buffer.from(bits, "hex").readDoubleBE())]);
  expect(written).toEqual(NUMBERS);
});

it("equal values give equal text, whatever the order of their keys", () => {
  const [a, b]: JsonValue[] = [
    { x: [{ b: 1, a: 2 }], y: null },
    { y: null, x: [{ a: 2, b: 1 }] },
  ];
  expect(canonicalJson(a ?? null)).toBe(canonicalJson(b ?? null));
});
