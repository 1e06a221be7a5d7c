import fc from "fast-check";

/** The share of the random cases that an ordinary run of the tests takes. */
const SHARE = 1 / 10;

/** The seed of an ordinary run: each takes the same cases, so that none fails by chance. */
const SEED = 1;

/** How many of `count` random cases to take: all of them when `IMGBATCH_SOAK` is set, else a share. */
export function fuzzRuns(count: number): number {
  return process.env.IMGBATCH_SOAK ? count : Math.ceil(count * SHARE);
}

/** Sets the seed of all random cases: `IMGBATCH_TEST_SEED`, or another for each run when `IMGBATCH_SOAK` is set, or a fixed one. */
export function seedRandomCases(): void {
  const { IMGBATCH_SOAK, IMGBATCH_TEST_SEED } = process.env;
  if (IMGBATCH_TEST_SEED) fc.configureGlobal({ seed: Number(IMGBATCH_TEST_SEED) });
  else if (!IMGBATCH_SOAK) fc.configureGlobal({ seed: SEED });
}
