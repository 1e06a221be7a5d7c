import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster, Member } from "../support/cluster/cluster.ts";
import { expect } from "./customer.ts";

/** Samples of a run. The first quarter of them is the time in which caches and pools fill. */
const SAMPLES = 60;
/** A process that keeps what it should not keep grows further in every quarter. */
const MOST_GROWTH = 1.25;
/** Rows of these tables are about the present: their number must not follow the number of batches. */
const PRESENT = ["realtime_holds", "workers", "request_counts", "uploads", "timed_secrets", "linked_images"];
const MOST_PRESENT_ROWS = 10_000;

/** One process of each role, which no fault ends. */
export function steadyOf(cluster: Cluster): Member[] {
  return [cluster.apis[0], cluster.workers[0]].filter((member) => member !== undefined);
}

/** Measures the memory of the steady processes of a cluster until `endMs`. */
export function measureGrowth(cluster: Cluster, endMs: number) {
  const everyMs = (endMs - Date.now()) / SAMPLES;
  const samples: number[][] = [];
  const measured = (async () => {
    while (Date.now() < endMs) {
      await sleep(everyMs);
      samples.push(await Promise.all(steadyOf(cluster).map(residentMb)));
    }
  })();
  measured.catch(() => {});
  return {
    /** Returns the line about the whole run. Throws when memory or rows have grown. */
    verdict: async ({
      done,
      batches,
      keyed,
    }: {
      done: object;
      batches: number;
      keyed: number;
    }): Promise<string> => {
      await measured;
      const quarter = Math.floor(samples.length / 4);
      const memory = steadyOf(cluster).map(({ name }, at) => {
        const all = samples.map((sample) => sample[at] ?? 0);
        const [early, late] = [all.slice(quarter, 2 * quarter), all.slice(-quarter)].map(middle);
        expect(late !== undefined && early !== undefined, "there are too few samples");
        expect(late <= early * MOST_GROWTH, `the memory of ${name} grew from ${early} to ${late} MB`);
        return `${name} ${early} -> ${late} MB`;
      });
      const counts = await cluster.rows(
        PRESENT.map((table) => `select '${table}', count(*) from ${table}`).join(" union all "),
      );
      for (const [table, rows] of counts)
        expect(Number(rows) <= MOST_PRESENT_ROWS, `${table} has ${rows} rows`);
      const present = counts.map(([table, rows]) => `${table} ${rows}`).join(", ");
      const faults = Object.values(done).reduce((sum: number, times) => sum + Number(times), 0);
      return `every promise was kept: ${faults} faults, ${batches} batches, ${keyed} images in real time; memory ${memory.join(", ")}; rows ${present}; files: none that no row names; nothing paid twice`;
    },
  };
}

/** The memory of a process that is in use, in MB. */
async function residentMb({ pid }: Member): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Math.round(Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) / 1024);
}

function middle(numbers: readonly number[]): number | undefined {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}
