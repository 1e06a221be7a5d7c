import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { timed } from "./measure.mjs";
import { makeBatches } from "./shared-stores.mjs";

const WORKER = fileURLToPath(new URL("claim-worker.mjs", import.meta.url));
const BATCHES = 20;
const ITEMS = 4000;
const ROUNDS = 3;

/** How many items three workers claim in the time in which one claims one: what they cost each other. */
export async function measureClaims({ stores, url }) {
  const rates = { 1: 0, 3: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    for (const workers of [1, 3])
      rates[workers] = Math.max(rates[workers], await claimAll(stores, url, workers));
  }
  return {
    name: "items claimed by three workers on PostgreSQL, against one",
    value: rates[3] / rates[1],
    goal: { atLeast: 1 },
    facts: {
      "one worker": `${rates[1].toFixed(0)} a second`,
      "three workers": `${rates[3].toFixed(0)} a second`,
    },
  };
}

async function claimAll(stores, url, count) {
  const ids = await makeBatches(stores, BATCHES, ITEMS / BATCHES);
  const workers = Array.from({ length: count }, () =>
    spawn(process.execPath, [WORKER, url, ids.join()], { stdio: ["pipe", "pipe", "inherit"] }),
  );
  await Promise.all(workers.map(({ stdout }) => once(stdout, "data")));
  let claimed = 0;
  const ms = await timed(async () => {
    for (const { stdin } of workers) stdin.write("go\n");
    const ends = await Promise.all(workers.map(({ stdout }) => once(stdout, "data")));
    for (const [text] of ends) claimed += Number(text);
  });
  await Promise.all(workers.map((worker) => worker.exitCode ?? once(worker, "exit")));
  if (claimed !== ITEMS) throw new Error(`${claimed} items were claimed, not ${ITEMS}`);
  return (ITEMS / ms) * 1000;
}
