const HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;

/**
 * How many frames a WebP file has, counted up to one more than `limit`. Reads nothing but the heads of its chunks: a
 * decoder that is asked takes time with the square of their number.
 */
export function countWebpFrames(bytes: Buffer, limit: number): number {
  let frames = 0;
  let at = HEADER_BYTES;
  while (at + CHUNK_HEADER_BYTES <= bytes.length && frames <= limit) {
    if (bytes.toString("latin1", at, at + 4) === "ANMF") frames++;
    const length = bytes.readUInt32LE(at + 4);
    at += CHUNK_HEADER_BYTES + length + (length % 2);
  }
  return frames;
}
