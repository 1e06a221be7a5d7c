import type { TestContext } from "vitest";
import { TEST_STORES } from "./test-stores.ts";

type Stores = typeof TEST_STORES;

/** Part of the path of a test's file, of its title, or of both with ` > ` between them. */
type Named = readonly string[];

const SHARED: readonly Stores[] = ["postgres", "cluster"];
const CLUSTER: readonly Stores[] = ["cluster"];

/**
 * The tests that say nothing about other stores, or about several processes on them, with the reason. All others are run
 * there as they are.
 */
const LEFT_OUT: readonly { reason: string; stores: readonly Stores[]; tests: Named }[] = [
  {
    reason: "opens, damages or fills the files of SQLite",
    stores: SHARED,
    tests: [
      "test/storage/",
      "[OAI-2] whose answer cannot be stored",
      "[CLOCK-7] without a saved look at the clock",
      "[JOB-9] leave none behind either",
    ],
  },
  {
    reason: "looks into, damages or fills the files of one process",
    stores: CLUSTER,
    tests: [
      "scenarios/damage.test.ts",
      "scenarios/disk-",
      "[LOAD-8] are removed when their sender goes away",
      "[LOAD-8] of a real-time request",
      "[WORK-4] an image that cannot be stored now",
    ],
  },
  {
    reason: "there is no `credentials.json`, and so no owner",
    stores: SHARED,
    tests: [
      "[SECRET-7] closes a file",
      "[ACCOUNT-1] shows the balance",
      "[CONSOLE-1]",
      "[CONSOLE-2]",
      "[CONSOLE-6]",
      "billing/consent.test.ts",
    ],
  },
  {
    reason: "what no record names is removed when it is old: another process may be about to record it",
    stores: SHARED,
    tests: [
      "[DATA-4] removes",
      "[ONCE-7] that no record names",
      "[OAI-8] that was stored before",
      "[FILES-6] outlives",
    ],
  },
  {
    reason: "waits until one sleeper, the sweep, is all that sleeps",
    stores: SHARED,
    tests: ["[ONCE-7] are", "[FILES-6] is gone after 48 hours", "[OAI-8] is removed by a service"],
  },
  {
    reason: "a chunk counts when its request has ended",
    stores: SHARED,
    tests: ["[FILES-2] keeps what came", "[FILES-3] belongs to the request that came last"],
  },
  {
    reason: "batches that begin together reach their provider in any order when a database takes its time",
    stores: SHARED,
    tests: ["[WORK-7] of many"],
  },
  {
    reason: "a look at a shared database finds changed batches, not which of their items changed",
    stores: SHARED,
    tests: ["[EVENTS-1] tells a key"],
  },
  {
    reason: "moves the clock on by hours while a database answers, and expects what happens in between",
    stores: SHARED,
    tests: [
      "[JOB-2] is found after a stop",
      "jobs/run-job.test.ts > [JOB-5]",
      "[JOB-6] does not end a job",
      "[JOB-6] and lists such a job late",
      "[JOB-6] lets a batch wait",
      "[JOB-6] is looked through once",
      "[JOB-6] that takes none for a whole day",
      "[JOB-6] fails the batch after too long",
      "[JOB-7] and does not stop",
      "[JOB-8] are polled more seldom",
    ],
  },
  {
    reason: "a limit that protects a process is its own",
    stores: CLUSTER,
    tests: [
      "[AUTH-5] that are wrong",
      "[AUTH-5] that is wrong",
      "[EDGE-3]",
      "[LIMIT-6]",
      "[LOAD-12] downloads that wait",
    ],
  },
  {
    reason: "a process counts and shows its own requests and images",
    stores: CLUSTER,
    tests: [
      "[RT-22]",
      "[OPS-5]",
      "[OPS-6]",
      "[FILES-9] lead to one set",
      "[EVENTS-3] goes on",
      "[EVENTS-3] cuts",
    ],
  },
  {
    reason: "each process has places and turns of its own with a provider",
    stores: CLUSTER,
    tests: [
      "[CANCEL-1] keeps and bills",
      "[RT-19]",
      "[WORK-2] stays",
      "[WORK-3] a batch of one",
      "[WORK-6]",
      "[WORK-8]",
    ],
  },
];

/** Returns why a test is left out on the stores of this run; null when it is not. */
export function reasonOf(file: string, title: string, stores: Stores): string | null {
  const name = `${file} > ${title}`;
  const found = LEFT_OUT.find(
    (each) => each.stores.includes(stores) && each.tests.some((t) => name.includes(t)),
  );
  return found?.reason ?? null;
}

/** Skips a test that is left out on the stores of this run. */
export function skipLeftOut({ task, skip }: TestContext): void {
  const reason = reasonOf(task.file.name, task.name, TEST_STORES);
  if (reason !== null) skip(reason);
}
