import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseConfig } from "../../build/config/load.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";
import { timed } from "./measure.mjs";

const MODEL = "vendorx-3.1-flash-image";
const BATCH = 200;

/**
 * The time of a run with an upstream against the ideal, in which every slot waits for the upstream all the time. At a paid
 * provider nothing is claimed before a slot is free.
 */
export async function measureUpstream({ images, latencyMs, concurrency, goal }) {
  const run = (isFree) => runBatches({ images, latencyMs, concurrency, isFree });
  const [free, paid] = [await run(true), await run(false)];
  return {
    name: `${images} images of an upstream of ${latencyMs} ms, ${concurrency} at once, against the ideal`,
    value: free.ms / free.idealMs,
    goal,
    facts: {
      "wall time": `${(free.ms / 1000).toFixed(2)} s, ideal ${(free.idealMs / 1000).toFixed(2)} s`,
      "the upstream took": `${((free.idealMs * concurrency) / images).toFixed(1)} ms an image`,
      "at a paid provider": (paid.ms / paid.idealMs).toFixed(2),
      "CPU an image": `${free.cpuMs.toFixed(1)} ms`,
      "memory at the end": `${(free.rss / 1e6).toFixed(0)} MB`,
    },
  };
}

async function runBatches({ images, latencyMs, concurrency, isFree }) {
  const upstream = spawn(
    process.execPath,
    [join(import.meta.dirname, "upstream-server.mjs"), String(latencyMs)],
    {
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    },
  );
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  try {
    const [port] = await once(upstream.stdout, "data");
    const baseUrl = `http://127.0.0.1:${String(port).trim()}`;
    const config = parseConfig(
      {
        models: [{ id: MODEL, prices: { "1K": 0 } }],
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
    upstream.send("waited?");
    const [waitedMs] = await once(upstream, "message");
    const cpuMs = (cpu.user + cpu.system) / 1000 / images;
    return { ms, idealMs: waitedMs / concurrency, cpuMs, rss };
  } finally {
    upstream.kill();
    await rm(data, { recursive: true, force: true });
  }
}
