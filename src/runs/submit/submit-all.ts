import PQueue from "p-queue";
import type { Clock } from "../../kernel/clock.ts";
import type { Chunk } from "../plan/plan.ts";

/** Requests under way at once, where they are small. */
const AT_ONCE = 4;
/** A pause is this many times as long as the part before it took. */
const PAUSE_FACTOR = 3;
/** Drawing an image mostly takes longer than this, so there is always something left to draw during a pause. */
const MAX_PAUSE_MS_AN_IMAGE = 10;

interface Pacing {
  clock: Clock;
  /** Ends a pause. */
  signal?: AbortSignal | undefined;
}

/**
 * Submits the parts of a run and returns the results in their order. The first part goes alone, since its refusal mostly
 * means that all are refused. Then several go at once, unless they have reference images, which are large. After a failure
 * no further part leaves. Parts under way are waited for, so that their batches are known; then the first error is thrown.
 * With `pacing` parts go one at a time, with pauses between them: the images of earlier parts are drawn in this process,
 * and reading a request holds them up. Default: null, no pauses.
 */
export async function submitAll<T>(
  chunks: readonly Chunk[],
  submit: (chunk: Chunk) => Promise<T>,
  pacing: Pacing | null = null,
): Promise<T[]> {
  const found: T[] = [];
  const failures: unknown[] = [];
  const one = async (chunk: Chunk, index: number) => {
    if (failures.length > 0) return;
    try {
      const startMs = pacing?.clock.monotonicMs() ?? 0;
      found[index] = await submit(chunk);
      if (pacing === null || index === chunks.length - 1) return;
      const pauseMs = PAUSE_FACTOR * (pacing.clock.monotonicMs() - startMs);
      const mostMs = MAX_PAUSE_MS_AN_IMAGE * chunk.imageCount;
      await pacing.clock.sleep(Math.min(pauseMs, mostMs), pacing.signal);
    } catch (error) {
      failures.push(error);
    }
  };
  const isLarge = chunks.some(({ items }) => items.some(({ references }) => references.length > 0));
  const queue = new PQueue({ concurrency: isLarge || pacing !== null ? 1 : AT_ONCE });
  const [first] = chunks;
  if (first !== undefined) await one(first, 0);
  await queue.addAll(chunks.slice(1).map((chunk, index) => () => one(chunk, index + 1)));
  if (failures.length > 0) throw failures[0];
  return found;
}
