import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseConfig } from "../../build/config/load.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";
import { runBareClient } from "./bare-client.mjs";
import { timed } from "./measure.mjs";

const MODEL = "vendorx-3.1-flash-image";
const BATCH = 200;

/**
 * The time of a run with an upstream against the ideal, in which every slot waits for the upstream all the time. At a paid
 * provider nothing is claimed before a slot is free.
 */
export async function measureUpstream({ images, latencyMs, concurrency, goal }) {
  const run = (work) => withUpstream({ images, latencyMs, concurrency }, work);
  const free = await run((baseUrl) => runBatches({ baseUrl, images, concurrency, isFree: true }));
  const paid = await run((baseUrl) => runBatches({ baseUrl, images, concurrency, isFree: false }));
  const path = `/v1beta/models/${MODEL}:generateContent`;
  const bare = await run(async (baseUrl) => ({
    ms: await runBareClient({ baseUrl, path, images, concurrency }),
  }));
  return {
    name: `${images} images of an upstream of ${latencyMs} ms, ${concurrency} at once, against the ideal`,
    value: free.ms / free.idealMs,
    goal,
    facts: {
      "wall time": `${(free.ms / 1000).toFixed(2)} s, ideal ${(free.idealMs / 1000).toFixed(2)} s`,
      "the upstream took": `${((free.idealMs * concurrency) / images).toFixed(1)} ms an image`,
      "a bare client that keeps nothing": (bare.ms / bare.idealMs).toFixed(3),
      "at a paid provider": (paid.ms / paid.idealMs).toFixed(2),
      "CPU an image": `${free.cpuMs.toFixed(1)} ms`,
      "memory at the end": `${(free.rss / 1e6).toFixed(0)} MB`,
    },
  };
}

/**
 * The time of a run with an upstream that refuses one of each 20 requests, with 429 and 500 in turns, against a script that
 * sends as many requests at once and retries them as the AI SDK does.
 */
export async function measureRefusals({ images, latencyMs, concurrency, goal }) {
  const run = (work) => withUpstream({ images, latencyMs, concurrency, refusedEvery: 20 }, work);
  const path = `/v1beta/models/${MODEL}:generateContent`;
  const script = await run(async (baseUrl) => ({
    ms: await runBareClient({ baseUrl, path, images, concurrency }),
  }));
  const service = await run((baseUrl) => runBatches({ baseUrl, images, concurrency, isFree: false }));
  return {
    name: `${images} images, 5 % of the requests refused, ${concurrency} at once, against a script that retries`,
    value: service.ms / script.ms,
    goal,
    facts: {
      "wall time": `${(service.ms / 1000).toFixed(2)} s, the script ${(script.ms / 1000).toFixed(2)} s`,
    },
  };
}

/** Runs a work with an upstream of its own, and adds the ideal time to its results. */
async function withUpstream({ images, latencyMs, concurrency, refusedEvery = [] }, work) {
  const server = [join(import.meta.dirname, "upstream-server.mjs"), latencyMs, refusedEvery]
    .flat()
    .map(String);
  const upstream = spawn(process.execPath, server, { stdio: ["ignore", "pipe", "inherit", "ipc"] });
  try {
    const [port] = await once(upstream.stdout, "data");
    const results = await work(`http://127.0.0.1:${String(port).trim()}`);
    upstream.send("waited?");
    const [{ waitedMs, answers }] = await once(upstream, "message");
    if (answers !== images) throw new Error(`${answers} answers for ${images} images`);
    return { ...results, idealMs: waitedMs / concurrency };
  } finally {
    upstream.kill();
  }
}

async function runBatches({ baseUrl, images, concurrency, isFree }) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    const config = parseConfig(
      {
        models: [{ id: MODEL, prices: { "1K": isFree ? 0 : 0.01 } }],
        providers: [{ name: "bench", type: "native", baseUrl, concurrency, free: isFree }],
      },
      "bench",
    );
    const service = await startService({
      config,
      dataDirectory: data,
      address: { host: "127.0.0.1", port: 0 },
      announceUrl: false,
      workers: true,
      log: silentLog,
    });
    const headers = {
      authorization: `Bearer ${service.credentials.api_key}`,
      "content-type": "application/json",
      "x-imgbatch-max-cost": "100",
    };
    const left = new Set();
    let allEnded = () => {};
    const ended = new Promise((resolve) => {
      allEnded = resolve;
    });
    service.feed.subscribe((event) => {
      if (
        event.type === "batch" &&
        event.status === "completed" &&
        left.delete(event.batchId) &&
        left.size === 0
      )
        allEnded();
    });
    const create = async (first) => {
      const count = Math.min(BATCH, images - first);
      const items = Array.from({ length: count }, (_, i) => ({ prompt: `picture ${first + i}` }));
      const body = JSON.stringify({ model: MODEL, items });
      const answer = await fetch(`${service.url}/v1/images/batches`, { method: "POST", headers, body });
      left.add((await answer.json()).id);
    };
    const cpuBefore = process.cpuUsage();
    const ms = await timed(async () => {
      for (let first = 0; first < images; first += BATCH) await create(first);
      await ended;
    });
    const cpu = process.cpuUsage(cpuBefore);
    const rss = process.memoryUsage.rss();
    await service.close(0);
    return { ms, cpuMs: (cpu.user + cpu.system) / 1000 / images, rss };
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}
