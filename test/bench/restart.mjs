import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { holdFor, openBatch } from "../../build/domain/batches/lifecycle.js";
import { randomIds } from "../../build/kernel/ids.js";
import { openDataDirectory } from "../../build/service/data-directory.js";
import { median } from "./measure.mjs";

const SERVICE = fileURLToPath(new URL("restart-service.mjs", import.meta.url));
const ROUNDS = 9;
const BACKLOG = 10_000;
const MODEL = "vendorx-3.1-flash-image";

/** How much later than a start with nothing to do a killed service has its first image again. */
export async function measureRestart() {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    const left = { idle: join(root, "idle"), killed: join(root, "killed"), backlog: join(root, "backlog") };
    await prepare(left);
    const times = { idle: [], killed: [], backlog: [] };
    const ready = { killed: [], backlog: [] };
    for (let round = 0; round < ROUNDS; round++) {
      // Each comes first as often as last: what ran before it may still keep the disk busy.
      const turns = Object.entries(left);
      for (const [name, data] of [...turns.slice(round % 3), ...turns.slice(0, round % 3)]) {
        const copy = join(root, "copy");
        await cp(data, copy, { recursive: true });
        const seen = await start(copy, name === "idle" ? ["ready"] : ["ready", "item"]);
        await rm(copy, { recursive: true });
        times[name].push(seen.item ?? seen.ready);
        ready[name]?.push(seen.ready);
      }
    }
    const ms = (numbers) => `${median(numbers).toFixed(0)} ms`;
    const row = (what, first, answers) => ({
      name: `the first image after ${what}, later than the first answer with nothing to do`,
      value: median(first) - median(times.idle),
      unit: "ms",
      goal: { atMost: 100 },
      facts: {
        "start with nothing to do, until it answers": ms(times.idle),
        "until it answers": ms(answers),
        "until its first image": ms(first),
      },
    });
    return [
      row("a kill", times.killed, ready.killed),
      row(`a kill with ${BACKLOG} queued batches`, times.backlog, ready.backlog),
    ];
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

/** Data directories: an empty one, one that was killed in the middle of a batch, and that one with many more waiting. */
async function prepare({ idle, killed, backlog }) {
  await start(idle, ["ready"]);
  await start(killed, ["ready"], ["hold"], async ({ url, key }) => {
    const items = Array.from({ length: 20 }, (_, i) => ({ custom_id: `i${i}`, prompt: `picture ${i}` }));
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify({ model: MODEL, items }) };
    const answer = await fetch(`${url}/v1/images/batches`, init);
    if (!answer.ok) throw new Error(await answer.text());
  });
  await cp(killed, backlog, { recursive: true });
  const { stores, close } = await openDataDirectory(backlog);
  const [first] = await stores.read.batches.all();
  const ids = Array.from({ length: BACKLOG }, () => randomIds.batchId());
  const item = { sourceIndex: 0, outputIndex: 0, position: 0, customId: "a", prompt: "a picture" };
  while (ids.length > 0) {
    await stores.write(async (tx) => {
      for (const id of ids.splice(0, 500)) {
        const one = { itemCount: 1, holdMicroUsd: 1, estimatedMicroUsd: 1 };
        const batch = { ...first, id, status: "queued", ...one };
        await openBatch(tx, batch, Date.now());
        await holdFor(tx, batch, Date.now());
        await tx.items.insertMany(id, [item]);
      }
    });
  }
  await close();
}

/** Starts the service, waits until it has said these things (in ms since the start), and kills it. */
async function start(data, events, args = [], meanwhile = async () => {}) {
  const startedMs = performance.now();
  const child = spawn(process.execPath, [SERVICE, data, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(child, "close");
  const seen = {};
  for await (const line of createInterface({ input: child.stdout })) {
    const said = JSON.parse(line);
    seen[said.event] = performance.now() - startedMs;
    if (said.event === "ready") await meanwhile(said);
    if (events.every((event) => event in seen)) break;
  }
  child.kill("SIGKILL");
  await closed;
  return seen;
}
