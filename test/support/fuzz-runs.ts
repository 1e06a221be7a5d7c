import fc from "fast-check";

/** The share of the random cases that an ordinary run of the tests takes. */
const SHARE = 1 / 10;

/** The seed of an ordinary run: each takes the same cases, so that none fails by chance. */
const SEED = 1;

/** How many of `count` random cases to take: all of them when `IMGBATCH_SOAK` is set, else a share. */
export function fuzzRuns(count: number): number {
  return process.env.IMGBATCH_SOAK ? count : Math.ceil(count * SHARE);
}

/**
 * Whether the case at `at` of a list is for the one at `nth` of `count` things that share the code under test: each case
 * goes to one of them in turn, and to all of them when `IMGBATCH_SOAK` is set.
 */
export function isInTurn(at: number, nth: number, count: number): boolean {
  return Boolean(process.env.IMGBATCH_SOAK) || at % count === nth;
}

/** Sets the seed of all random cases: `IMGBATCH_TEST_SEED`, or another for each run when `IMGBATCH_SOAK` is set, or a fixed one. */
export function seedRandomCases(): void {
  const { IMGBATCH_SOAK, IMGBATCH_TEST_SEED } = process.env;
  if (IMGBATCH_TEST_SEED) fc.configureGlobal({ seed: Number(IMGBATCH_TEST_SEED) });
  else if (!IMGBATCH_SOAK) fc.configureGlobal({ seed: SEED });
}
