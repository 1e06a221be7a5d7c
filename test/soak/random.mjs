/** Numbers that a seed decides: the same seed gives the same story. Parts of a seed are joined. */
export function seeded(...parts) {
  let state = 0x811c9dc5;
  for (const byte of Buffer.from(parts.join("/"))) state = Math.imul(state ^ byte, 0x01000193) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    /** A whole number from `low` to `high`, both included. */
    whole: (low, high) => low + Math.floor(next() * (high - low + 1)),
    chance: (share) => next() < share,
    pick: (list) => list[Math.floor(next() * list.length)],
    /** Small numbers as often as large ones: kills come early and late. */
    spread: (low, high) => low * (high / low) ** next(),
  };
}

/** The list in an order that the random numbers decide. */
export function shuffled(list, random) {
  const rest = [...list];
  return list.map(() => rest.splice(Math.floor(random.next() * rest.length), 1)[0]);
}
