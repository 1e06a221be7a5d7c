import { expect, it } from "vitest";
import { formatSize } from "../../src/kernel/text.ts";

it("a size for people has one unit, in powers of 1000, and never four digits", () => {
  const sizes = [0, 999, 1000, 1_449, 99_499, 999_499, 999_500, 1_400_000, 79e9, 5e12, 12_345e12];
  expect(sizes.map(formatSize)).toEqual([
    "0 B",
    "999 B",
    "1.0 kB",
    "1.4 kB",
    "99.5 kB",
    "999 kB",
    "1.0 MB",
    "1.4 MB",
    "79.0 GB",
    "5.0 TB",
    "12345 TB",
  ]);
});
