/** The share of the random cases that an ordinary run of the tests takes. */
const SHARE = 1 / 5;

/** How many of `count` random cases to take: all of them when `IMGBATCH_SOAK` is set, else a share. Each run draws others. */
export function fuzzRuns(count: number): number {
  return process.env.IMGBATCH_SOAK ? count : Math.ceil(count * SHARE);
}
