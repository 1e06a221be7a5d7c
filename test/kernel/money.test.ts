import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatUsd, microsToNumber, multiplyToMicros, numberToMicros } from "../../src/kernel/money.ts";

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
    expect([6_700_000, 33_500, 1, 0, -2_500_000].map(formatUsd)).toEqual([
      "$6.70",
      "$0.0335",
      "$0.000001",
      "$0.00",
      "-$2.50",
    ]);
  });
});
