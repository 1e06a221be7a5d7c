import { expect } from "vitest";

/*
 * Compares bytes at once. Vitest would compare them one by one, a tenth of a second for a hundred kilobytes.
 * Test files that share a process share this module too, so that it is added once.
 */
expect.addEqualityTesters([
  (a, b) =>
    a instanceof Uint8Array && b instanceof Uint8Array && a.constructor === b.constructor
      ? Buffer.compare(a, b) === 0
      : undefined,
]);
