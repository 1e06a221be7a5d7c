import PQueue from "p-queue";
import type { Chunk } from "../plan/plan.ts";

/** Requests under way at once, where they are small. */
const AT_ONCE = 4;

/**
 * Submits the parts of a run and returns the results in their order. The first part goes alone, since its refusal mostly
 * means that all are refused. Then several go at once, unless they have reference images, which are large. After a failure
 * no further part leaves. Parts under way are waited for, so that their batches are known; then the first error is thrown.
 */
export async function submitAll<T>(
  chunks: readonly Chunk[],
  submit: (chunk: Chunk) => Promise<T>,
): Promise<T[]> {
  const found: T[] = [];
  const failures: unknown[] = [];
  const one = async (chunk: Chunk, index: number) => {
    if (failures.length > 0) return;
    try {
      found[index] = await submit(chunk);
    } catch (error) {
      failures.push(error);
    }
  };
  const isLarge = chunks.some(({ items }) => items.some(({ references }) => references.length > 0));
  const queue = new PQueue({ concurrency: isLarge ? 1 : AT_ONCE });
  const [first] = chunks;
  if (first !== undefined) await one(first, 0);
  await queue.addAll(chunks.slice(1).map((chunk, index) => () => one(chunk, index + 1)));
  if (failures.length > 0) throw failures[0];
  return found;
}
