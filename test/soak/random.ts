/** Numbers from 0 up to 1 that a seed decides. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export type Random = ReturnType<typeof seeded>;

/** Choices that a seed decides: the same seed gives the same story. Parts of a seed are joined. */
export function seeded(...parts: (string | number)[]) {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(parts.join("/"))) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  const next = seededRandom(hash);
  return {
    next,
    /** A whole number from `low` to `high`, both included. */
    whole: (low: number, high: number) => low + Math.floor(next() * (high - low + 1)),
    chance: (share: number) => next() < share,
    pick: <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)] as T,
    /** Small numbers as often as large ones: kills come early and late. */
    spread: (low: number, high: number) => low * (high / low) ** next(),
  };
}
