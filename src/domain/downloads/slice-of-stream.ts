import type { Readable } from "node:stream";

/** Yields bytes `start` to `end` (inclusive) of a stream that can only be read from its beginning; the rest is not read. */
export async function* sliceOfStream(
  source: Readable,
  range: { start: number; end: number },
): AsyncGenerator<Buffer> {
  let position = 0;
  // Leaving the loop destroys the source.
  for await (const chunk of source as AsyncIterable<Buffer>) {
    const from = Math.max(0, range.start - position);
    const to = Math.min(chunk.length, range.end + 1 - position);
    position += chunk.length;
    if (from < to) yield chunk.subarray(from, to);
    if (position > range.end) return;
  }
}
