import type { TestContext } from "vitest";
import { TEST_STORES } from "./test-stores.ts";

type Stores = typeof TEST_STORES;

const SHARED: readonly Stores[] = ["postgres", "cluster"];
const CLUSTER: readonly Stores[] = ["cluster"];

/**
 * The tests of `npm run test:cluster` that say nothing about other stores, or about several processes on them: part of the path
 * of the file, or of the title. All others are run there as they are.
 */
const LEFT_OUT: readonly { reason: string; stores: readonly Stores[]; tests: readonly string[] }[] = [
  {
    reason: "damages or fills the files of SQLite",
    stores: SHARED,
    tests: ["whose answer cannot be stored"],
  },
  {
    reason: "reads or damages the files of one process",
    stores: CLUSTER,
    tests: [
      "are removed when their sender goes away",
      "of a real-time request are read when the provider works",
      "an image that cannot be stored now",
    ],
  },
  {
    reason: "there is no `credentials.json`, and so no owner",
    stores: SHARED,
    tests: [
      "sums up batches and real-time images",
      "[ACCOUNT-1] shows the balance",
      "console/sign-in.test.ts",
      "console/overview.test.ts",
    ],
  },
  {
    reason: "only the owner pauses the workers, and there is none",
    stores: SHARED,
    tests: [
      "its file may be deleted right after it was created",
      "is refused above the number that a key may have running",
    ],
  },
  {
    reason: "what no record names is removed when it is old: another process may be about to record it",
    stores: SHARED,
    tests: [
      "scenarios/batch-life.test.ts > removes ",
      "that no record names are removed",
      "that was stored before the process died",
      "outlives a restart, and so does what an unfinished upload",
    ],
  },
  {
    reason: "waits until the sweep is all that sleeps",
    stores: SHARED,
    tests: [
      "is gone after 48 hours, with its bytes",
      "is removed by a service that does not run long",
      "are there for 24 hours, and are removed after them",
    ],
  },
  {
    reason: "a chunk counts when its request has ended",
    stores: SHARED,
    tests: ["keeps what came over a connection that broke", "belongs to the request that came last"],
  },
  {
    reason: "batches that begin together reach their provider in any order when a database takes its time",
    stores: SHARED,
    tests: ["of many waiting batches few"],
  },
  {
    reason: "a poll of a shared database finds changed batches, not which of their items changed",
    stores: SHARED,
    tests: ["[EVENTS-1] tells a key"],
  },
  {
    reason: "a limit that protects a process is its own",
    stores: CLUSTER,
    tests: [
      "[AUTH-5] that are wrong",
      "[AUTH-5] that is wrong",
      "no caller escapes a configured limit",
      "a key has a limited number of downloads at once",
      "downloads that wait behind another answer",
    ],
  },
  {
    reason: "a process counts and shows its own requests and images",
    stores: CLUSTER,
    tests: [
      "is counted by the numbers for monitoring",
      "monitoring/metrics.test.ts",
      "lead to one set of operations",
      "server/console/events.test.ts",
    ],
  },
  {
    reason: "each process has a limit and an order of its own with a provider",
    stores: CLUSTER,
    tests: [
      "[CANCEL-1] keeps and bills",
      "a real-time request comes before the items of a batch",
      "[WORK-2]",
      "[WORK-3] a batch of one",
      "does not hold up another key",
      "keys take turns with a provider",
      "a provider that hangs",
    ],
  },
];

/** Skips a test that is left out on the stores of this run. */
export function skipLeftOut({ task, skip }: TestContext): void {
  const name = `${task.file.name} > ${task.name}`;
  const found = LEFT_OUT.find(
    ({ stores, tests }) => stores.includes(TEST_STORES) && tests.some((part) => name.includes(part)),
  );
  if (found !== undefined) skip(found.reason);
}
