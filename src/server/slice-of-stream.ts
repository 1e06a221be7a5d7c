import { type Readable, Transform } from "node:stream";

/** Bytes `start` to `end` (inclusive) of a stream that can only be read from its beginning. */
export function sliceOfStream(source: Readable, range: { start: number; end: number }): Readable {
  let position = 0;
  const slice = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const from = Math.max(0, range.start - position);
      const to = Math.min(chunk.length, range.end + 1 - position);
      position += chunk.length;
      if (from < to) this.push(chunk.subarray(from, to));
      done();
    },
  });
  source.on("error", (error) => slice.destroy(error));
  slice.on("close", () => source.destroy());
  return source.pipe(slice);
}
