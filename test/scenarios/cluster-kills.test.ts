import { expect, inject, it, onTestFinished, vi } from "vitest";
import { seeded } from "../soak/random.mjs";
import { randomStory } from "../soak/stories.mjs";
import { Cluster } from "../support/cluster/cluster.ts";
import { ClusterClient, keyedStory } from "../support/cluster/customers.ts";
import { harm } from "../support/cluster/misfortunes.ts";
import { judge } from "../support/cluster/verdict.ts";
import { postgresBin } from "../support/postgres-server.ts";
import { SMALL } from "../support/upstreams/images.ts";

declare module "vitest" {
  interface ProvidedContext {
    kills?: number;
  }
}

const KILLS = inject("kills") ?? 4;
/** By when others take up the work of a process that is gone; beside a whole suite all is slower. */
const TAKEN_UP_MS = inject("kills") ? 10_000 : 20_000;
/** Customers that pause leave the cluster as much to do while others go, at a fraction of the processor time. */
const CUSTOMERS = inject("kills") ? { clients: 4, pauseMs: 0 } : { clients: 2, pauseMs: 500 };
const WORKERS = inject("kills") ? 3 : 2;
const SEED = inject("seed") ?? 7;
const EVERY_MS = 700;
const LONGEST_MS = (inject("kills") ? 120_000 : 240_000) + KILLS * 10_000;

if (postgresBin() === null) process.stderr.write("SKIPPED: the kills of a cluster need PostgreSQL\n");

it.skipIf(postgresBin() === null)(
  "several APIs and workers keep every promise while processes, PostgreSQL and S3 fail",
  { timeout: LONGEST_MS },
  async () => {
    const cluster = await Cluster.start({ workers: WORKERS, config: { retention: { sweepMinutes: 0.05 } } });
    onTestFinished(() => cluster.close());
    cluster.upstream.size = SMALL;
    const random = seeded(SEED, "cluster");
    cluster.upstream.setBehaviour(async ({ read, pause, make, send }) => {
      await read();
      await pause(random.whole(20, 400));
      send(await make());
    });
    const client = new ClusterClient(cluster);
    const stories = [
      randomStory(client, { keys: [cluster.key], random, prefix: "c", ...CUSTOMERS }),
      ...["one", "two"].map((prefix) => keyedStory(client, { random, prefix, pauseMs: CUSTOMERS.pauseMs })),
    ];
    const broken = Promise.all(stories).then(() => new Promise<never>(() => {}));
    try {
      const plan = { random, count: KILLS, everyMs: EVERY_MS, takenUpMs: TAKEN_UP_MS };
      const harmed = await Promise.race([harm(cluster, plan), broken]);
      const enough = () => expect(client.memory.batches.size).toBeGreaterThan(KILLS / 2);
      await Promise.race([vi.waitFor(enough, 100_000), broken]);
      client.isOver = true;
      await Promise.all(stories);
      await client.drain();
      await judge(cluster, client);
      expect(harmed.longestIdleMs).toBeLessThan(TAKEN_UP_MS);
      const summary = {
        seed: SEED,
        ...harmed,
        batches: client.memory.batches.size,
        keyed: client.keyed.size,
      };
      if (inject("kills"))
        process.stdout.write(`${JSON.stringify({ ...summary, repeats: client.repeats })}\n`);
    } catch (error) {
      client.isOver = true;
      process.stderr.write(`${cluster.output}\n${JSON.stringify(client.repeats)}\n`);
      throw error;
    }
  },
);
