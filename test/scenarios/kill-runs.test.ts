import { join } from "node:path";
import { expect, inject, it, onTestFinished, vi } from "vitest";
import { ClusterCustomer, judge, keyedStory } from "../soak/cluster-customer.ts";
import { injectFaults } from "../soak/cluster-faults.ts";
import { measureGrowth, steadyOf } from "../soak/growth.ts";
import { KillRun } from "../soak/kill-run.ts";
import { hasStrace } from "../soak/killed-service.ts";
import { seeded } from "../soak/random.ts";
import { randomStory } from "../soak/stories.ts";
import { Cluster } from "../support/cluster/cluster.ts";
import { postgresBin } from "../support/postgres-server.ts";
import { tempDir } from "../support/temp-dir.ts";
import { SMALL } from "../support/upstreams/images.ts";

declare module "vitest" {
  interface ProvidedContext {
    kills?: number;
    /** How long a cluster works; everything else is left out. */
    hours?: number;
    rounds?: number;
    seed?: number;
    /** The number of the only run on SQLite. */
    run?: number;
  }
}

const hours = inject("hours");
const isLong = inject("kills") !== undefined || hours !== undefined;
const SEED = inject("seed") ?? 7;
const NEVER_MS = 2 ** 31 - 1;

if (!hasStrace) process.stderr.write("SKIPPED: kills at system calls need strace\n");
if (postgresBin() === null) process.stderr.write("SKIPPED: the kills of a cluster need PostgreSQL\n");

it.skipIf(hours !== undefined)(
  "[LIFE-7] killed at random moments, at durable steps and at system calls, the service keeps every promise",
  async () => {
    const count = inject("kills") ?? 3;
    const kills: Record<string, number> = {};
    let left = count;
    const only = inject("run");
    for (let number = only ?? 0; left > 0 && number < (only ?? 10 * count) + 1; number++) {
      const run = new KillRun(join(await tempDir(), `run-${number}`), SEED, number);
      await run.run(isLong ? left : Math.ceil(left / 2)).catch((error) => {
        throw new Error(`run ${number} of seed ${SEED}: ${error.message}`, { cause: error });
      });
      for (const [way, times] of Object.entries(run.kills)) {
        kills[way] = (kills[way] ?? 0) + times;
        left -= times;
      }
      if (isLong && number % 10 === 9) process.stderr.write(`${number + 1} runs, ${count - left} kills\n`);
    }
    expect(left).toBeLessThan(count);
    if (isLong) process.stdout.write(`${JSON.stringify({ seed: SEED, kills })}\n`);
  },
  NEVER_MS,
);

it.skipIf(postgresBin() === null || inject("run") !== undefined)(
  "several APIs and workers keep every promise while processes, PostgreSQL and S3 fail",
  async () => {
    const count = inject("kills") ?? 4;
    /** By when others take up the work of a process that is gone; beside a whole suite all is slower. */
    const takenUpMs = isLong ? 10_000 : 20_000;
    /** Customers that pause leave the cluster as much to do while others go, at a fraction of the processor time. */
    const unpaced = isLong ? { clients: 4, pauseMs: 0 } : { clients: 2, pauseMs: 500 };
    const customers = hours === undefined ? unpaced : { clients: 2, pauseMs: 2000 };
    const config = { retention: { sweepMinutes: 0.05 } };
    const hasMovableClock = hours !== undefined;
    const cluster = await Cluster.start({ workers: isLong ? 3 : 2, config, hasMovableClock });
    onTestFinished(() => cluster.close());
    cluster.upstream.size = SMALL;
    const random = seeded(SEED, "cluster");
    cluster.upstream.setBehaviour(async ({ read, pause, make, send }) => {
      await read();
      await pause(random.whole(20, 400));
      send(await make());
    });
    const customer = new ClusterCustomer(cluster);
    const stories = [
      randomStory(customer, { keys: [cluster.key], random, prefix: "c", ...customers }),
      ...["one", "two"].map((prefix) => keyedStory(customer, { random, prefix, pauseMs: customers.pauseMs })),
    ];
    const broken = Promise.all(stories).then(() => new Promise<never>(() => {}));
    try {
      const endMs = Date.now() + (hours ?? 0) * 3_600_000;
      const plan = {
        ...{ random, takenUpMs, everyMs: hours === undefined ? 700 : 5000 },
        isOver: (done: number) => (hours === undefined ? done >= count : Date.now() >= endMs),
        ...(hours === undefined ? {} : { steady: steadyOf(cluster), stepsClocks: true }),
      };
      const growth = hours === undefined ? null : measureGrowth(cluster, endMs);
      const report = await Promise.race([injectFaults(cluster, plan), broken]);
      const enough = () => expect(customer.batches.size).toBeGreaterThan(count / 2);
      await Promise.race([vi.waitFor(enough, 100_000), broken]);
      customer.isOver = true;
      await Promise.all(stories);
      await customer.drain();
      await judge(cluster, customer);
      expect(report.longestIdleMs).toBeLessThan(takenUpMs);
      const { repeats, batches, keyed } = customer;
      const summary = { seed: SEED, ...report, batches: batches.size, keyed: keyed.size, repeats };
      if (growth === null && isLong) process.stdout.write(`${JSON.stringify(summary)}\n`);
      if (growth !== null) process.stdout.write(`${await growth.verdict(summary)}\n`);
    } catch (error) {
      customer.isOver = true;
      process.stderr.write(`${cluster.output}\n${JSON.stringify(customer.repeats)}\n`);
      throw error;
    }
  },
  NEVER_MS,
);
