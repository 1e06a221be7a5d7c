import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  formatUsd,
  microsToNumber,
  multiplyToMicros,
  numberToMicros,
  parseUsd,
} from "../../src/kernel/money.ts";

describe("money", () => {
  it("[MONEY-1] multiplies decimals exactly and rounds half up once", () => {
    expect(multiplyToMicros([0.067, 1, 1, 0.5])).toBe(33_500);
    expect(multiplyToMicros([0.1, 3])).toBe(300_000);
    expect(multiplyToMicros([0.0000005])).toBe(1);
    expect(multiplyToMicros([0.00000049])).toBe(0);
    expect(multiplyToMicros([1e-7, 1e7])).toBe(1_000_000);
    expect(multiplyToMicros([1.005, 0.5, 0.000001])).toBe(1);
    expect(() => multiplyToMicros([-1])).toThrow(RangeError);
    expect(() => multiplyToMicros([Number.NaN])).toThrow(RangeError);
  });

  it("[MONEY-1] goes over the wire and back without loss", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e12 }), (micros) => {
        expect(numberToMicros(JSON.parse(JSON.stringify(microsToNumber(micros))))).toBe(micros);
      }),
    );
  });

  it("[MONEY-1] is shown to people with two to six decimals", () => {
    expect([6_700_000, 33_500, 1, 0, -2_500_000].map((micros) => formatUsd(micros))).toEqual([
      "$6.70",
      "$0.0335",
      "$0.000001",
      "$0.00",
      "-$2.50",
    ]);
  });

  it("[MONEY-1] is shown in cents where it is a sum, and rounded up where somebody agrees to it", () => {
    const amounts = [0, 1, 100_500, 335_000, 5_000, 12_345_678];
    expect(amounts.map((micros) => formatUsd(micros, "sum"))).toEqual([
      "$0.00",
      "<$0.01",
      "$0.10",
      "$0.34",
      "$0.01",
      "$12.35",
    ]);
    expect(amounts.map((micros) => formatUsd(micros, "limit"))).toEqual([
      "$0.00",
      "$0.01",
      "$0.11",
      "$0.34",
      "$0.01",
      "$12.35",
    ]);
  });

  it("[MONEY-1] is read from what people type, digit by digit", () => {
    const typed = ["5", "0.25", "0.000001", "0", "007", "1.10", "9007199254.740991"];
    expect(typed.map(parseUsd)).toEqual([
      5_000_000,
      250_000,
      1,
      0,
      7_000_000,
      1_100_000,
      Number.MAX_SAFE_INTEGER,
    ]);
    fc.assert(
      fc.property(fc.maxSafeNat(), (micros) => {
        const digits = String(micros).padStart(7, "0");
        expect(parseUsd(`${digits.slice(0, -6)}.${digits.slice(-6)}`)).toBe(micros);
      }),
    );
  });

  it("[MONEY-1] is not guessed from what is no amount, or more than can be counted exactly", () => {
    const wrong = [
      "",
      "-1",
      "+1",
      "1.",
      ".5",
      "1.0000001",
      "1e3",
      "1,000",
      "$5",
      " 5",
      "5\n",
      "0x10",
      "NaN",
      "٣",
    ];
    const tooLarge = ["9007199254.740992", "9007199255", "9".repeat(400)];
    expect([...wrong, ...tooLarge].filter((text) => parseUsd(text) !== null)).toEqual([]);
  });
});
