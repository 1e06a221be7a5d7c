import { expect, it } from "vitest";
import { readAhead } from "../../../src/domain/downloads/piece-stream.ts";

const MIB = 1024 * 1024;

/** Reads items of this many bytes, and notes which were begun and dropped. */
function reading(sizes: readonly number[], read = async (i: number) => i) {
  const begun: number[] = [];
  const dropped: number[] = [];
  const results = readAhead(sizes.keys(), {
    sizeOf: (i) => sizes[i] ?? 0,
    read: (i) => {
      begun.push(i);
      return read(i);
    },
    drop: (i) => dropped.push(i),
  });
  return { begun, dropped, results };
}

it("four images are begun beside the one in use, and all come in their order", async () => {
  const late = (i: number) => new Promise<number>((resolve) => setTimeout(() => resolve(i), 10 - i));
  const { begun, results } = reading(Array(9).fill(MIB), late);
  const order: number[] = [];
  for await (const i of results) {
    expect(begun.length).toBe(Math.min(9, i + 5));
    order.push(i);
  }
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
});

it("images ahead have at most 16 MiB together, and a larger one comes alone", async () => {
  const { begun, results } = reading([9, 9, 7, 1, 30, 1, 1].map((mib) => mib * MIB));
  const seen: [number, number][] = [];
  for await (const i of results) seen.push([i, begun.length]);
  expect(seen).toEqual([
    [0, 3],
    [1, 4],
    [2, 4],
    [3, 4],
    [4, 7],
    [5, 7],
    [6, 7],
  ]);
});

it("what was read ahead is dropped when nobody wants it, and a failure comes at its turn", async () => {
  const failing = async (i: number) => {
    if (i === 2) throw new Error("unreadable");
    return i;
  };
  const { dropped, results } = reading(Array(9).fill(1), failing);
  expect([await results.next(), await results.next()]).toMatchObject([{ value: 0 }, { value: 1 }]);
  await expect(results.next()).rejects.toThrow("unreadable");
  await expect.poll(() => dropped).toEqual([3, 4, 5, 6]);
  const early = reading(Array(9).fill(1));
  await early.results.next();
  await early.results.return(undefined);
  await expect.poll(() => early.dropped).toEqual([1, 2, 3, 4]);
});
